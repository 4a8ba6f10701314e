package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// attempts is the number of measurements that may be disturbed by other load of the machine.
const attempts = 3

// TestQuiet runs the scenarios that measure milliseconds, one after another. Each has a few
// attempts. TestQuiet logs the output of failed attempts, also if a later one succeeds.
func TestQuiet(t *testing.T) {
	if os.Getenv("QUIET") == "" {
		t.Skip("measures losses, which needs an idle machine: make quiet")
	}
	needs(t)
	next := nextAgent(t)
	files, err := filepath.Glob("testdata/quiet/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata/quiet: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= attempts; n++ {
				one := &attempt{}
				one.Run(name, func(testscript.T) { testscript.RunT(one, only(file, next)) })
				switch {
				case one.skipped:
					t.Skip(one.log.String())
				case !one.failed:
					return
				}
				t.Logf("attempt %d of %d failed:\n%s", n, attempts, one.log.String())
			}
			t.Fail()
		})
	}
}

// only returns the parameters of one script. The script finds the program for an upgrade of an
// agent in NEXT_AGENT.
func only(file, next string) testscript.Params {
	p := params("")
	p.Files = []string{file}
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("NEXT_AGENT", next)
		return setup(env)
	}
	return p
}

// nextAgent builds an agent for an upgrade, whose binary differs from the tested one.
func nextAgent(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hawser-next-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "hawser-agent")
	build := exec.Command("go", "build", "-ldflags", "-X main.version=next", "-o", path, "hawser.dev/hawser/cmd/hawser-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the next agent: %v\n%s", err, out)
	}
	return path
}

// attempt is a run of one script that may fail without failing the test.
type attempt struct {
	log             strings.Builder
	failed, skipped bool
}

// Run runs f in a goroutine, which FailNow or Skip may end, and waits for its end.
func (a *attempt) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(a)
	}()
	<-done
}

// Skip ends the attempt as skipped.
func (a *attempt) Skip(args ...any) {
	a.skipped = true
	a.Log(args...)
	runtime.Goexit()
}

// Fatal logs and ends the attempt as failed.
func (a *attempt) Fatal(args ...any) {
	a.Log(args...)
	a.FailNow()
}

// FailNow ends the attempt as failed.
func (a *attempt) FailNow() {
	a.failed = true
	runtime.Goexit()
}

// Parallel does nothing: attempts run alone.
func (a *attempt) Parallel() {}

// Log appends to the log, which TestQuiet prints if the attempt fails.
func (a *attempt) Log(args ...any) { fmt.Fprintln(&a.log, args...) }

// Verbose reports false: the output of successful attempts is not needed.
func (a *attempt) Verbose() bool { return false }
