package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// binariesEnv names a directory with the programs under test. Without it, the tests build them.
const binariesEnv = "HAWSER_E2E_BIN"

func TestMain(m *testing.M) {
	runtime.LockOSThread() // as in main
	os.Exit(withBinaries(m))
}

func withBinaries(m *testing.M) int {
	if os.Getenv(binariesEnv) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "hawser-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", dir, "hawser.dev/hawser/cmd/hawser", "hawser.dev/hawser/cmd/hawser-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binariesEnv, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// attempts is the number of runs that may be late: a busy machine delays everything. A safety
// violation fails at once.
const attempts = 3

// TestChaos runs thirty faults of a fixed seed.
func TestChaos(t *testing.T) {
	needs(t)
	o := options{
		seed: 3, faults: 30, perRound: 15, slow: 5, bin: os.Getenv(binariesEnv),
		root: filepath.Join("..", ".."), evidence: t.ArtifactDir(),
	}
	for attempt := 1; ; attempt++ {
		var out bytes.Buffer
		err := run(t.Context(), o, &out)
		t.Logf("attempt %d:\n%s", attempt, out.String())
		var v *violatedError
		switch {
		case err == nil:
			return
		case errors.As(err, &v) && v.safety == 0 && attempt < attempts:
			t.Logf("late, perhaps because of the machine: %v", err)
		default:
			t.Fatal(err)
		}
	}
}

// needs skips the test if the machine lacks a requirement, or fails it with REQUIRE_KERNEL=1.
func needs(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"nft", "ip", "git", "wg"} {
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

// TestCommandRefuses tests that wrong arguments fail before the lab starts.
func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-faults", "0"}, {"-faults", "50", "-round", "3"}, {"-slow", "0.5"}, {"-per-round", "0"}, {"-x"}} {
		if err := command(context.Background(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("arguments %v: no error", args)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	o := options{faults: 30, perRound: 25}
	if o.rounds() != 2 || o.size(1) != 25 || o.size(2) != 5 {
		t.Errorf("%d rounds of %d and %d", o.rounds(), o.size(1), o.size(2))
	}
}
