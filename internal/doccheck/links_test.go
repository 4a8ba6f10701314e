package doccheck_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/doccheck"
)

// TestLinks checks that every relative link of the documents leads to a file and a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "e2e/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		for _, f := range found {
			pages = append(pages, filepath.ToSlash(f[len("../../"):]))
		}
	}
	wrong, err := doccheck.CheckLinks("../..", pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md": "# A\n[b](b.md#a-b-c), [b](b.md#x), [c](c.md), [self](#a), [web](https://x.org/a.md)\n",
		"b.md": "## `A` *b*, [c](a.md)!\n## `A` *b*, [c](a.md)!\n[twice](#a-b-c-1), [thrice](#a-b-c-2)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := doccheck.CheckLinks(dir, []string{"a.md", "b.md"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.md:2: b.md has no heading #x", "a.md:2: no file c.md", "b.md:3: b.md has no heading #a-b-c-2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
