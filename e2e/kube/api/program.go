//go:build kube

package api

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main implements TestMain: it builds hawser, sets program to its path, runs the tests, and returns
// the exit code.
func Main(m *testing.M, program *string) int {
	dir, err := os.MkdirTemp("", "hawser-program-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		*program = filepath.Join(dir, "hawser")
		build := exec.Command("go", "build", "-o", *program, "hawser.dev/hawser/cmd/hawser")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build hawser:", err)
		return 1
	}
	return m.Run()
}
