package doccheck

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// CheckField compares a section of a document with the code that uses a field. It returns the Go
// files that use the field, but that the section does not name. It also returns the files that the
// section names without a function, but that do not use the field. A file uses a field if an
// identifier contains its name, in any case. Tests and the directories in skip are ignored.
func CheckField(repository, page, heading, field string, skip ...string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		return nil, fmt.Errorf("%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_/-]+/[a-z0-9_-]+\\.go)`").FindAllStringSubmatch(section, -1) {
		named[m[1]] = true
	}
	var out []string
	used := map[string]bool{}
	err = filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || slices.Contains(skip, rel)):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		uses, err := hasIdentifier(path, field)
		if err != nil {
			return err
		}
		used[rel] = uses
		if uses && !named[rel] {
			out = append(out, fmt.Sprintf("%s: %q does not name %s, which uses %s", page, heading, rel, field))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", field, err)
	}
	for file := range named {
		// A file that is named with a function may handle other fields.
		if !used[file] && !strings.Contains(section, "`"+file+"`:") {
			out = append(out, fmt.Sprintf("%s: %q names %s, which does not use %s", page, heading, file, field))
		}
	}
	slices.Sort(out)
	return out, nil
}

func hasIdentifier(file, name string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read Go file: %w", err)
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(file, -1, len(text)), text, nil, 0)
	for {
		_, t, literal := s.Scan()
		if t == token.EOF {
			return false, nil
		}
		if t == token.IDENT && strings.Contains(strings.ToLower(literal), strings.ToLower(name)) {
			return true, nil
		}
	}
}
