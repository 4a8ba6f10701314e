package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackages tests that a package is listed once, with its version, and a file without a package by
// its path.
func TestPackages(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("dpkg-query")
	if err != nil {
		t.Skip("not a Debian machine")
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	have := packages([]string{program, "/usr/bin/dpkg", own, strings.TrimPrefix(program, "/usr")})
	if want := regexp.MustCompile(`^` + regexp.QuoteMeta(own) + ` dpkg=\d[^ ]*$`); !want.MatchString(have) {
		t.Errorf("have %q, want %s", have, want)
	}
}

// TestPinned tests that the packages must equal those of the pin file.
func TestPinned(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "packages")
	if err := os.WriteFile(file, []byte("libc6=2.36\nlibssl3=3.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		have []string
		want string // part of the error
	}{
		{"the same", []string{"libc6=2.36", "libssl3=3.0"}, ""},
		{"newer", []string{"libc6=2.37", "libssl3=3.0"}, file + ": libc6=2.37: write these versions there"},
		{"one more", []string{"libc6=2.36", "libssl3=3.0", "zlib1g=1"}, "zlib1g=1: "},
		{"one less", []string{"libc6=2.36"}, "names libssl3=3.0, and the image has no file of it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := pinned(tt.have, file)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
