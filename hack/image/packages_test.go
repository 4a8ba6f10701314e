package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackages: files of one package name it once, with its version; what is of no
// package names itself.
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
