package doccheck_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/doccheck"
)

// TestArchitecture checks that the files and functions exist through which the documents follow a
// packet, a commit and a round.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		wrong, err := doccheck.CheckSymbols("../..", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

func TestCheckSymbols(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"pkg/a.go": "package pkg\n\ntype T[P any] struct{}\n\nfunc (t *T[P]) Do() {}\n\nfunc Free() {}\n",
		"page.md": "See `pkg`, `pkg/a.go`: `T.Do()`,\n`Free()` and `hw-vx0`.\n\n" +
			"1. `pkg/a.go`: `T.Gone()`.\n2. `Free()` without its file.\n\n| `pkg/b.go` | x |\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := doccheck.CheckSymbols(dir, "page.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"page.md:4: no file named there declares T.Gone",
		"page.md:5: no file named there declares Free",
		"page.md:7: there is no pkg/b.go",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExtending checks that the worked examples are in the code.
func TestExtending(t *testing.T) {
	t.Parallel()
	for _, check := range []func(string, string) ([]string, error){doccheck.CheckSymbols, doccheck.CheckExcerpts} {
		wrong, err := check("../..", "docs/extending.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

func TestCheckExcerpts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package a\n\nfunc A() {\n\tone()\n\ttwo()\n\tthree()\n}\n", "Makefile": "build: ## x\n",
		"a_test.go": "package a\n\nfunc TestIt(t *testing.T) {}\n", "dns.txtar": "",
		"page.md": "    // a.go\n    func A() {\n        one()\n    ...\n        three()\n\n" +
			"    // a.go\n    func A() {\n        two()\n\n" +
			"    make build lint X=1\n    go test . -run 'TestIt/dns'\n    go test . -run TestGone/tour\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := doccheck.CheckExcerpts(dir, "page.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"page.md:9: not in a.go, or not there: two()",
		"page.md:11: there is no make lint",
		"page.md:13: there is no TestGone",
		"page.md:13: there is no tour",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
