package doccheck_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/doccheck"
)

// TestFieldPlaces checks that docs/extending.md lists all places of a field.
func TestFieldPlaces(t *testing.T) {
	t.Parallel()
	wrong, err := doccheck.CheckField("../..", "docs/extending.md", "## Add a field", "keepalive",
		"e2e", "hack", "internal", "lab", "nodeagent/cluster", "nodeagent/driver/drivertest", "nodeagent/observe/connprobe")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestCheckField(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/types.go":      "package a\n\nvar SizeOfAll int\n",
		"a/missing.go":    "package a\n\nfunc f(size int) {}\n",
		"a/comment.go":    "package a\n\n// size\nvar x = \"size\"\n",
		"a/named.go":      "package a\n",
		"a/elsewhere.go":  "package a\n",
		"a/types_test.go": "package a\n\nvar size int\n",
		"b/skipped.go":    "package b\n\nvar size int\n",
		"page.md": "# Page\n\n`a/missing.go`\n\n## Add\n\n1. `a/types.go`.\n2. `a/named.go`, `a/elsewhere.go`: `F()`.\n\n" +
			"## Next\n\n`a/missing.go`\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := doccheck.CheckField(dir, "page.md", "## Add", "size", "b")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`page.md: "## Add" does not name a/missing.go, which uses size`,
		`page.md: "## Add" names a/named.go, which does not use size`,
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := doccheck.CheckField(dir, "page.md", "## Gone", "size"); err == nil {
		t.Error("a missing heading is no error")
	}
}
