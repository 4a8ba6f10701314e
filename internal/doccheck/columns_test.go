package doccheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/doccheck"
)

func TestColumns(t *testing.T) {
	t.Parallel()
	wrong, err := doccheck.CheckColumns("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestCheckColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.md":  strings.Repeat("é", 100) + "\n| " + strings.Repeat("x", 120) + " |\n" + strings.Repeat("x", 101),
		"b.md":  "# B\n\n<!-- Generated from C. -->\n" + strings.Repeat("x", 101),
		"a.txt": strings.Repeat("x", 101),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := doccheck.CheckColumns(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.md:3: 101 columns, 100 are allowed"}, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := doccheck.CheckColumns(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there has no lines that are too long")
	}
}
