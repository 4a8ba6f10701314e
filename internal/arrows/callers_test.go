package arrows

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCallers: the comment of each package that is imported says what it owns, and ends with
// a paragraph "Called by" that names its callers. Who is named must import it, and who
// imports it must be named, or a folder over it. Programs, and tests in e2e, have none.
func TestCallers(t *testing.T) {
	t.Parallel()
	packages := list(t)
	paths := map[string]bool{} // of packages and the folders over them, without the module
	for _, p := range packages {
		for dir := short(p.ImportPath); dir != "." && dir != ""; dir = filepath.Dir(dir) {
			paths[dir] = true
		}
	}
	for _, p := range packages {
		own := short(p.ImportPath)
		if p.Name == "main" || len(p.GoFiles) == 0 || under(own, "e2e") || under(own, "hack") {
			continue
		}
		named := callers(comment(t, p), paths)
		if named == nil {
			t.Errorf("%s: its comment does not say who calls it: end it with a paragraph that begins with \"Called by\"", own)
		}
		code, tests := importers(packages, p.ImportPath)
		for _, n := range named {
			if n != own && !slices.ContainsFunc(append(code, tests...), func(c string) bool { return under(c, n) }) {
				t.Errorf("%s: its comment names %s, which does not import it", own, n)
			}
		}
		for _, c := range code {
			if !under(c, "e2e") && !slices.ContainsFunc(named, func(n string) bool { return under(c, n) }) {
				t.Errorf("%s: its comment does not name %s, which imports it", own, c)
			}
		}
	}
}

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

// callers gives the packages and folders that a comment names as callers; nil = it has no
// such paragraph.
func callers(comment string, paths map[string]bool) []string {
	at := strings.LastIndex(comment, "\n\nCalled by ")
	if at < 0 {
		return nil
	}
	text := comment[at:]
	named := []string{}
	for _, word := range regexp.MustCompile(`[a-z0-9-]+(/[a-z0-9-]+)*`).FindAllString(text, -1) {
		if paths[word] {
			named = append(named, word)
		}
	}
	return named
}

// importers gives those of a package, and those whose tests alone import it.
func importers(packages []listed, path string) (code, tests []string) {
	for _, p := range packages {
		switch {
		case p.ImportPath == path:
		case slices.Contains(p.Imports, path):
			code = append(code, short(p.ImportPath))
		case slices.Contains(p.TestImports, path) || slices.Contains(p.XTestImports, path):
			tests = append(tests, short(p.ImportPath))
		}
	}
	return code, tests
}

func comment(t *testing.T, p listed) string {
	t.Helper()
	var out string
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			out += file.Doc.Text()
		}
	}
	return out
}
