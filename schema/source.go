package schema

import (
	"bytes"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
)

// Source is the text of a topology file; it knows where each value stands. It
// is safe for concurrent use.
type Source struct {
	File string // name for messages
	Raw  []byte // content

	root  *yaml.Node // top node of the document; nil when it is not YAML
	index func() map[string]*yaml.Node
	lines func() [][]byte
	plain func() []bool // by line: all of it is ASCII
}

// newSource prepares the two tables, which are made at their first use. top is
// what the document is read into.
func newSource(file string, raw []byte, top reflect.Type) *Source {
	s := &Source{File: file, Raw: raw}
	s.lines = sync.OnceValue(func() [][]byte { return bytes.Split(raw, []byte("\n")) })
	s.plain = sync.OnceValue(func() []bool {
		out := make([]bool, len(s.lines()))
		for i, line := range s.lines() {
			out[i] = !bytes.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf })
		}
		return out
	})
	s.index = sync.OnceValue(func() map[string]*yaml.Node {
		x := indexer{nodes: map[string]*yaml.Node{}, book: rulebook{}}
		if s.root != nil {
			x.walk(s.root, top, "")
		}
		return x.nodes
	})
	return s
}

// Pos gives the place of a path, such as clusters[g1].podCIDRs[0] or, by its text,
// clusters[g1].podCIDRs[10.7.0.0/16], or of the nearest parent that exists. The body of the document is left out of paths:
// spec.dns.ttl is dns.ttl.
func (s *Source) Pos(path string) diag.Pos {
	if s.root == nil {
		return diag.Pos{File: s.File}
	}
	for ; path != ""; path = parentPath(path) {
		if n, ok := s.index()[path]; ok {
			return s.place(n)
		}
		if n, ok := s.index()["spec"]; ok && parentPath(path) == "" && inBody(path) {
			return s.place(n)
		}
	}
	return s.place(s.root)
}

// Has reports whether the file says something at a path; what it leaves out has its default.
func (s *Source) Has(path string) bool {
	_, ok := s.index()[path]
	return ok
}

// inBody reports whether a top-level path is one of spec.
func inBody(path string) bool {
	return path != "apiVersion" && path != "kind" && path != "metadata"
}

// indexer finds the node of every path.
type indexer struct {
	nodes map[string]*yaml.Node
	book  rulebook
}

func (x *indexer) walk(n *yaml.Node, t reflect.Type, path string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == dynamicType {
		t = reflect.TypeFor[[]DynamicRule]()
		if n.Kind == yaml.MappingNode {
			t = t.Elem()
		}
	}
	switch {
	case n.Kind == yaml.SequenceNode && (t.Kind() == reflect.Slice || t == hostnamesType):
		x.items(n, t, path)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			x.add(at(path, n.Content[i].Value), n.Content[i])
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		x.fields(n, t, path)
	}
}

func (x *indexer) items(n *yaml.Node, t reflect.Type, path string) {
	item := reflect.TypeFor[string]()
	if t.Kind() == reflect.Slice {
		item = t.Elem()
	}
	seen, naming := map[string]bool{}, namingOf(item)
	for i, child := range n.Content {
		p := at(path, label(seen, nodeName(child, naming), i))
		x.add(p, child)
		x.walk(child, item, p)
	}
	for _, child := range n.Content { // behind all places, which come first where a text looks like one
		if text, ok := plainText(child); ok {
			x.add(at(path, text), child)
		}
	}
}

func (x *indexer) fields(n *yaml.Node, t reflect.Type, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		for _, f := range x.book.of(t) {
			if f.name != n.Content[i].Value {
				continue
			}
			p, value := fieldPath(path, f.name), n.Content[i+1]
			if isNull(value) {
				value = n.Content[i] // an empty value has no place of its own
			}
			x.add(p, value)
			x.walk(value, t.Field(f.index).Type, p)
		}
	}
}

// add keeps the first node of a path.
func (x *indexer) add(path string, n *yaml.Node) {
	if _, ok := x.nodes[path]; !ok {
		x.nodes[path] = n
	}
}

// place gives the position of a node and how much of its line it covers.
func (s *Source) place(n *yaml.Node) diag.Pos {
	p := diag.Pos{File: s.File, Line: n.Line, Column: n.Column, Width: 1}
	rest := s.line(n.Line)
	if s.plain()[max(n.Line-1, 0)%len(s.plain())] {
		rest = rest[min(n.Column-1, len(rest)):]
	} else {
		for range n.Column - 1 {
			_, size := utf8.DecodeRune(rest)
			rest = rest[size:]
		}
	}
	p.Width = max(utf8.RuneCount(covered(n, rest)), 1)
	return p
}

// line gives a line of the file, counted from 1, without its end.
func (s *Source) line(number int) []byte {
	lines := s.lines()
	if number < 1 || number > len(lines) {
		return nil
	}
	return bytes.TrimSuffix(lines[number-1], []byte("\r"))
}

// wholeLine gives the position of all that stands on a line.
func (s *Source) wholeLine(number int) diag.Pos {
	text := string(s.line(number))
	body := strings.TrimLeft(text, " \t")
	return diag.Pos{
		File: s.File, Line: number, Column: 1 + len(text) - len(body),
		Width: max(utf8.RuneCountInString(strings.TrimRight(body, " \t")), 1),
	}
}

// covered gives what a node covers of its first line, of which rest is what
// begins with the node.
func covered(n *yaml.Node, rest []byte) []byte {
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return rest[:quotedLen(rest)]
	case n.Kind == yaml.ScalarNode && n.Value != "" && bytes.HasPrefix(rest, []byte(n.Value)):
		return rest[:len(n.Value)]
	case n.Style&yaml.FlowStyle != 0:
		return rest[:flowLen(rest)]
	}
	text, _, _ := bytes.Cut(rest, []byte(" #"))
	return bytes.TrimRight(text, " \t")
}

// quotedLen gives the length of the quoted scalar at the beginning of text, or
// all of text when it goes on in the next line.
func quotedLen(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[0] == '"' && text[i] == '\\':
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return len(text)
}

// flowLen gives the length of the flow collection at the beginning of text, or
// all of text when it goes on in the next line.
func flowLen(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"', '\'':
			i += quotedLen(text[i:]) - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}
