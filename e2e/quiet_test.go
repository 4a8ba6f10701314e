package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestQuiet runs the scenarios that measure, alone on the machine: packets that
// others' load holds up must not count.
func TestQuiet(t *testing.T) {
	needs(t)
	next := nextAgent(t)
	p := params("testdata/quiet")
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("NEXT_AGENT", next)
		return setup(env)
	}
	testscript.Run(t, p)
}

// nextAgent builds an agent that is another binary than the one under test, to
// upgrade to.
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
