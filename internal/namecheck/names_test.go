package namecheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vague lists words that are too vague as a whole name. The name needs an object (tellSilent:
// warnUnreachable), or the word of the field (take: apply, decode, acquire).
const vague = `take look ask asked tell tells told say says said follow settle note keep kept
	begin give gives see hear heard hold turn place word found back away mate lane sight goal
	trouble beside ours hurry knock front carry anew somebody nobody whoever`

// retired maps words that occur in no name to the words of docs/glossary.md.
var retired = map[string]string{
	"annex": "extension block", "annexes": "extension blocks", "anew": "again", "bell": "trigger", "beside": "paired",
	"crowd": "group", "errand": "test pod", "farewell": "decommission", "journey": "trace", "mate": "sibling",
	"mates": "siblings", "mend": "fix", "mended": "fixed", "poke": "triggered update", "pokes": "triggered updates", "trip": "trace, destination", "trips": "traces, destinations",
	"twin": "alternate", "twins": "alternates",
}

var (
	camelWord = regexp.MustCompile(`[A-Z]?[a-z]+`)
	roundTrip = regexp.MustCompile(`[Rr]oundTrip`) // the usual word for a time and for an encoding
)

// TestNames checks the names of functions, methods, types, their fields, and variables
// and constants of packages. A word of vague may start a longer name.
func TestNames(t *testing.T) {
	t.Parallel()
	words := strings.Fields(vague)
	check := func(at string, id *ast.Ident) {
		problem := ""
		if slices.Contains(words, strings.ToLower(id.Name)) {
			problem = "the name needs an object"
		}
		for _, part := range camelWord.FindAllString(roundTrip.ReplaceAllString(id.Name, ""), -1) {
			if better, ok := retired[strings.ToLower(part)]; ok {
				problem = "the glossary has: " + better
			}
		}
		if problem != "" {
			t.Errorf("%s:%s: %s", at, id.Name, problem)
		}
	}
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		raw, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, raw, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		for _, decl := range file.Decls {
			for _, id := range declaredNames(decl) {
				check(path, id)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// declaredNames returns the names that a declaration adds to its package, with the fields
// and methods of its types.
func declaredNames(decl ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		names = append(names, decl.Name)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			case *ast.TypeSpec:
				names = append(names, spec.Name)
				ast.Inspect(spec.Type, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						names = append(names, f.Names...)
					}
					_, isFunc := n.(*ast.FuncType)
					return !isFunc // parameters
				})
			}
		}
	}
	return names
}
