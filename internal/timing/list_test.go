// Package timing lists the timing constants of the programs, from their source, for
// docs/timing.md.
//
// Called by its own test, which writes and checks the page (make generate).
package timing

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/markdown"
)

// units are the durations that package time names, in nanoseconds.
var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
	"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// Constant is one constant of a duration.
type Constant struct {
	Package string // its folder, from the top of the repository
	Name    string
	Value   time.Duration
	Text    string // its comment, or that of the constants it stands among; without line breaks
}

// Read gives the constants of all packages below the folders, tests aside, by folder and
// in the order of the source. It fails where a file cannot be parsed, and where a constant
// has no comment at all: nobody would know what it waits for.
func Read(root string, folders ...string) ([]Constant, error) {
	var out []Constant
	var wrong []error
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || strings.HasSuffix(entry.Name(), "test") {
				return err // such packages serve tests
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return fmt.Errorf("name %s: %w", path, err)
			}
			found, err := read(path, filepath.ToSlash(name))
			out = append(out, found...)
			wrong = append(wrong, err)
			return nil
		})
		wrong = append(wrong, err)
	}
	return out, errors.Join(wrong...)
}

// read gives the constants of one folder.
func read(path, name string) ([]Constant, error) {
	files, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	values := map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		parsed = append(parsed, f)
		for _, group := range constants(f) {
			for _, spec := range group.Specs {
				s := spec.(*ast.ValueSpec)
				for i, n := range s.Names {
					if i < len(s.Values) {
						values[n.Name] = s.Values[i]
					}
				}
			}
		}
	}
	var out []Constant
	var wrong []error
	for _, f := range parsed {
		for _, group := range constants(f) {
			before, line := "", 0
			for _, spec := range group.Specs {
				s := spec.(*ast.ValueSpec)
				text := comment(s.Comment)
				at := set.Position(s.Pos()).Line
				switch {
				case s.Doc != nil:
					before = comment(s.Doc)
				case line == 0 || at > line+1:
					before = comment(group.Doc)
				}
				line = set.Position(s.End()).Line
				if text == "" || before != "" && s.Doc != nil {
					text = strings.TrimSpace(before + " " + text)
				}
				for i, n := range s.Names {
					if i >= len(s.Values) || !isDuration(s.Values[i], values, 0) {
						continue
					}
					value, ok := evaluate(s.Values[i], values)
					if !ok {
						wrong = append(wrong, fmt.Errorf("%s: the value of %s is too hard to read: write it as a number of units", set.Position(n.Pos()), n.Name))
						continue
					}
					if text == "" {
						wrong = append(wrong, fmt.Errorf("%s: %s has no comment: say what it waits for", set.Position(n.Pos()), n.Name))
						continue
					}
					out = append(out, Constant{Package: name, Name: n.Name, Value: value, Text: text})
				}
			}
		}
	}
	return out, errors.Join(wrong...)
}

// constants gives a file's const declarations outside of functions.
func constants(f *ast.File) []*ast.GenDecl {
	var out []*ast.GenDecl
	for _, d := range f.Decls {
		if g, is := d.(*ast.GenDecl); is && g.Tok == token.CONST {
			out = append(out, g)
		}
	}
	return out
}

// comment gives a comment's text on one line.
func comment(g *ast.CommentGroup) string {
	return strings.Join(strings.Fields(g.Text()), " ")
}

// isDuration reports whether an expression has a unit of package time in it, itself or by
// other constants of the package.
func isDuration(e ast.Expr, values map[string]ast.Expr, depth int) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			// A count that is made of durations is none.
			found = false
			return false
		case *ast.SelectorExpr:
			x, is := n.X.(*ast.Ident)
			found = found || is && x.Name == "time" && units[n.Sel.Name] != 0
			return false
		case *ast.Ident:
			if other, known := values[n.Name]; known && depth < 10 {
				found = found || isDuration(other, values, depth+1)
			}
		}
		return true
	})
	return found
}

// evaluate computes an expression of integers, units and other constants.
func evaluate(e ast.Expr, values map[string]ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, exact := constant.Int64Val(constant.ToInt(constant.MakeFromLiteral(e.Value, e.Kind, 0)))
		return time.Duration(n), exact
	case *ast.SelectorExpr:
		unit, known := units[e.Sel.Name]
		return unit, known
	case *ast.Ident:
		other, known := values[e.Name]
		if !known {
			return 0, false
		}
		return evaluate(other, values)
	case *ast.ParenExpr:
		return evaluate(e.X, values)
	case *ast.BinaryExpr:
		a, okA := evaluate(e.X, values)
		b, okB := evaluate(e.Y, values)
		ops := map[token.Token]func() time.Duration{
			token.MUL: func() time.Duration { return a * b }, token.ADD: func() time.Duration { return a + b },
			token.SUB: func() time.Duration { return a - b }, token.QUO: func() time.Duration { return a / b },
		}
		op, known := ops[e.Op]
		if !okA || !okB || !known || e.Op == token.QUO && b == 0 {
			return 0, false
		}
		return op(), true
	}
	return 0, false
}

// List gives the constants as lists of Markdown, one for each package.
func List(all []Constant) string {
	var out strings.Builder
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(c Constant) bool { return c.Package != all[0].Package })
		if end < 0 {
			end = len(all)
		}
		fmt.Fprintf(&out, "### %s\n\n", all[0].Package)
		for _, c := range all[:end] {
			out.WriteString(markdown.Item(fmt.Sprintf("`%s` (%s): %s", c.Name, short(c.Value), strings.TrimPrefix(c.Text, c.Name+" is "))))
		}
		out.WriteString("\n")
		all = all[end:]
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// short gives a duration as one writes it: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
