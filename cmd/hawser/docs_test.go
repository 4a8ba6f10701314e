package main

import (
	"os"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/internal/cited"
)

// TestDocuments: what they cite of this program is there.
func TestDocuments(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../e2e/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range cited.Check(newRoot(&app{}), string(text)) {
			t.Errorf("%s:%s", page, wrong)
		}
	}
}
