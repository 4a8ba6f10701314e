package ociimage

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPrograms checks that Programs returns a program with its loader and libraries, each once. The
// unpacked copy runs without other files.
func TestPrograms(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	if len(neededLibraries(shell)) == 0 {
		t.Skip("sh is static")
	}
	files, err := Programs(map[string]string{shell: "/bin/shell"})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
		if f.Mode != 0o755 || len(f.Data) == 0 || strings.HasPrefix(f.Path, "/") {
			t.Errorf("%s: mode %o, %d bytes", f.Path, f.Mode, len(f.Data))
		}
	}
	slices.Sort(paths)
	if len(slices.Compact(slices.Clone(paths))) != len(paths) {
		t.Errorf("a file twice: %v", paths)
	}
	for _, want := range []string{"bin/shell", "libc.so", "ld-"} {
		if !slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no %s in %v", want, paths)
		}
	}
}

func TestProgramsMissing(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "program")
	_, err := Programs(map[string]string{missing: "/bin/program"})
	if err == nil || !strings.Contains(err.Error(), "add /bin/program to the image") {
		t.Errorf("got %v", err)
	}
}
