// Package e2e tests the built binaries in complete scenarios: a lab of network namespaces, the real
// reconciler, one real agent per node, real packets. Each scenario is a script in testdata; see
// README.md there.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite expected output in the scripts")

// binariesEnv names a directory with the programs to test. Without it, the tests build the programs
// of the tree.
const binariesEnv = "HAWSER_E2E_BIN"

// binaries returns the directory of hawser and hawser-agent.
func binaries() string { return os.Getenv(binariesEnv) }

// TestMain builds the programs of the tree before the tests, unless binariesEnv is set.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hawser-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := []string{"hawser.dev/hawser/e2e/traffic/hawser-traffic:hawser-traffic"}
	under := dir
	if binaries() == "" {
		built = append(built, "hawser.dev/hawser/cmd/hawser:hawser", "hawser.dev/hawser/cmd/hawser-agent:hawser-agent")
	} else if under, err = filepath.Abs(binaries()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, what := range built {
		source, name, _ := strings.Cut(what, ":")
		if _, err := os.Stat(filepath.Join(under, name)); err == nil {
			continue // already built
		}
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	// PATH is also for programs that the lab starts in pods.
	path := under + ":" + dir + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	if err := errors.Join(os.Setenv(binariesEnv, under), os.Setenv("PATH", path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// TestScripts runs all scenarios that TestOutages does not run, several at a time.
func TestScripts(t *testing.T) {
	needs(t)
	t.Parallel()
	testscript.Run(t, scenarios(t, false))
}

func params(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"eventually": eventually,
			"never":      never,
			"commit":     commit,
			"replace":    replace,
			"prometheus": prometheus,
			"dashboard":  dashboard,
		},
	}
}

// needs skips the test if this machine lacks a requirement, or fails it with REQUIRE_KERNEL=1.
func needs(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"nft", "curl", "dig", "ip", "git", "jq", "nc", "ping", "ssh-keygen", "tcpdump", "wg"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	switch {
	case missing == "":
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatalf("needs %s (make setup)", missing)
	default:
		t.Skipf("needs %s (make setup)", missing)
	}
}

// setup creates a lab directory for each scenario, with a short path for unix sockets. At the end
// it always removes the lab, and further labs of the scenario whose names have the same prefix.
func setup(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "hwlab-")
	if err != nil {
		return err
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	hawser := filepath.Join(binaries(), "hawser")
	env.Values[watchedKey{}] = &watched{answered: map[string]bool{}}
	env.Setenv("PATH", os.Getenv("PATH"))
	env.Setenv("HAWSER_LAB_DIR", filepath.Join(dir, "lab"))
	env.Setenv("REPO", filepath.Join(dir, "lab", "repo"))
	env.Setenv("ROOT", root)
	env.Setenv("TOPOLOGY", cmp.Or(os.Getenv("HAWSER_E2E_TOPOLOGY"), filepath.Join(root, "docs", "clusterset.full.yaml")))
	env.Setenv("CABLE", "51820 +wireguard")
	env.Setenv("GIT_AUTHOR_NAME", "test")
	env.Setenv("GIT_AUTHOR_EMAIL", "test@example.org")
	env.Setenv("GIT_COMMITTER_NAME", "test")
	env.Setenv("GIT_COMMITTER_EMAIL", "test@example.org")
	env.Defer(func() {
		labs, _ := filepath.Glob(filepath.Join(dir, "lab*")) // the pattern is valid
		for _, lab := range labs {
			if out, err := exec.Command(hawser, "lab", "down", "--dir", lab).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "lab down: %v\n%s", err, out)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return nil
}

const poll = 50 * time.Millisecond

// patience returns the factor for all time limits, which is higher for emulated machines.
func patience() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("HAWSER_E2E_PATIENCE")); err == nil && n > 1 {
		return time.Duration(n)
	}
	return 1
}

// eventually DURATION REGEXP CMD ARGS... repeats a command until it succeeds and its output
// matches. It fails after the duration. With ! the command must fail.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	limit, pattern, argv := parse(ts, "eventually", args)
	limit *= patience()
	deadline := time.Now().Add(limit)
	for {
		start := time.Now()
		out, err := output(ts, argv)
		if (err != nil) == neg && pattern.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("not within %s: %s\n%s%v", limit, strings.Join(argv, " "), out, err)
		}
		// Leave the processor to the programs under test.
		time.Sleep(min(max(poll, time.Since(start)), 10*poll))
	}
}

// never DURATION REGEXP CMD ARGS... repeats a command for the whole duration. The command must
// always succeed, and its output must never match. With ! it may fail.
func never(ts *testscript.TestScript, neg bool, args []string) {
	limit, pattern, argv := parse(ts, "never", args)
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		out, err := output(ts, argv)
		if (err != nil && !neg) || pattern.MatchString(out) {
			ts.Fatalf("%s\n%s%v", strings.Join(argv, " "), out, err)
		}
		time.Sleep(poll)
	}
}

func parse(ts *testscript.TestScript, name string, args []string) (time.Duration, *regexp.Regexp, []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: %s DURATION REGEXP CMD [ARGS...]", name)
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	return limit, pattern, args[2:]
}

func output(ts *testscript.TestScript, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second*patience())
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "HAWSER_LAB_DIR", "REPO"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// commit MESSAGE commits all changes in the topology repository of the lab,
// as a user would.
func commit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: commit MESSAGE")
	}
	repo := ts.Getenv("REPO")
	for _, argv := range [][]string{{"add", "-A"}, {"commit", "-q", "-m", args[0]}} {
		cmd := exec.Command("git", append([]string{"-C", repo}, argv...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.org",
			"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.org")
		if out, err := cmd.CombinedOutput(); err != nil {
			ts.Fatalf("git %s: %v\n%s", strings.Join(argv, " "), err, out)
		}
	}
}

// replace FILE REGEXP TEXT replaces the matches in a file. It fails without a match.
func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE REGEXP TEXT")
	}
	path := ts.MkAbs(args[0])
	raw, err := os.ReadFile(path)
	ts.Check(err)
	pattern, err := regexp.Compile("(?ms)" + args[1])
	ts.Check(err)
	if !pattern.Match(raw) {
		ts.Fatalf("%s: nothing matches %s", args[0], args[1])
	}
	text := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(args[2])
	ts.Check(os.WriteFile(path, pattern.ReplaceAll(raw, []byte(text)), 0o644))
}
