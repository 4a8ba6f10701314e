// Command gen writes clusterset.schema.json and docs/reference.md from the Go
// types of package schema: their comments are the descriptions, their tags the
// rules. Run it with `go generate ./schema`.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run generates the files of the repository at root.
func run(root string) error {
	files, err := generate(filepath.Join(root, "schema"))
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}

// generate returns the content of each file, by its path in the repository. The
// sources are read from dir.
func generate(dir string) (map[string][]byte, error) {
	types, err := parse(dir)
	if err != nil {
		return nil, err
	}
	schema, err := jsonSchema(types)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"clusterset.schema.json": schema, "docs/reference.md": reference(types)}, nil
}
