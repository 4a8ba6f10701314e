package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// CheckSymbols checks the code that a document names in backquotes, and returns the problems. Paths
// with a slash (`nodeagent/loop.go`, `render/plan`) must exist in the repository. Functions
// (`State()`, `Agent.source()`) must be declared in a Go file that the same paragraph or list item
// names.
func CheckSymbols(repository, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	path := regexp.MustCompile("`([a-z0-9_-]+(?:/[a-z0-9_.-]+)+)`")
	function := regexp.MustCompile("`((?:[A-Za-z]\\w*\\.)?[A-Za-z]\\w*)\\(\\)`")
	var out []string
	for _, b := range blocks(string(text)) {
		declared := map[string]bool{}
		for _, m := range path.FindAllStringSubmatch(b.text, -1) {
			file := filepath.Join(repository, m[1])
			if _, err := os.Stat(file); err != nil {
				out = append(out, fmt.Sprintf("%s:%d: there is no %s", page, b.line, m[1]))
			} else if strings.HasSuffix(file, ".go") {
				if err := declarations(file, declared); err != nil {
					return nil, err
				}
			}
		}
		for _, m := range function.FindAllStringSubmatch(b.text, -1) {
			if !declared[m[1]] {
				out = append(out, fmt.Sprintf("%s:%d: no file named there declares %s", page, b.line, m[1]))
			}
		}
	}
	return out, nil
}

// block is a heading, a paragraph, a list item or a row of a table.
type block struct {
	line int // first line
	text string
}

func blocks(text string) []block {
	var out []block
	begins := regexp.MustCompile(`^(\||#|- |\d+\. )`)
	open := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			open = false
			continue
		}
		if !open || begins.MatchString(line) {
			out = append(out, block{line: number})
		}
		out[len(out)-1].text += line + "\n"
		open = line[0] != '|' && line[0] != '#'
	}
	for i := range out {
		out[i].text = strings.TrimSuffix(out[i].text, "\n")
	}
	return out
}

// declarations adds the functions of a Go file to names, and methods as Type.Method.
func declarations(file string, names map[string]bool) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("read Go file: %w", err)
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = typeName(f.Recv.List[0].Type) + "." + name
		}
		names[name] = true
	}
	return nil
}

// typeName returns the name T of *T, T[P] or T.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
