package doccheck

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"hawser.dev/hawser/internal/markdown"
)

// CheckColumns returns the lines over 100 characters in the Markdown files below a directory, each
// with file and line. It skips rows of tables, because Markdown cannot break them, and generated
// files.
func CheckColumns(dir string) ([]string, error) {
	var out []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "\n<!-- Generated from ") {
			return nil
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if n > markdown.Columns && !strings.HasPrefix(line, "|") {
				out = append(out, fmt.Sprintf("%s:%d: %d columns, %d are allowed", name, number, n, markdown.Columns))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the documents of %s: %w", dir, err)
	}
	return out, nil
}
