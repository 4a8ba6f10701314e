// Package document parses the text of a YAML file strictly. It returns the line and the column of
// every value, and hints for syntax errors.
package document

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/syntax"
	"hawser.dev/hawser/schema/tags"
)

// Source is the text of a topology file with the position of each value. It is safe for concurrent
// use.
type Source struct {
	File string // name for messages
	Raw  []byte // content

	Root    *yaml.Node // top node of the document; nil if it is not YAML
	index   func() map[string]*yaml.Node
	lines   func() [][]byte
	isASCII func() []bool // by line: all bytes are ASCII
}

// New returns the Source of a file. It builds its tables at their first use. top is the type into
// which the document is decoded.
func New(file string, raw []byte, top reflect.Type) *Source {
	s := &Source{File: file, Raw: raw}
	s.lines = sync.OnceValue(func() [][]byte { return bytes.Split(raw, []byte("\n")) })
	s.isASCII = sync.OnceValue(func() []bool {
		out := make([]bool, len(s.lines()))
		for i, line := range s.lines() {
			out[i] = !bytes.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf })
		}
		return out
	})
	s.index = sync.OnceValue(func() map[string]*yaml.Node {
		x := indexer{nodes: map[string]*yaml.Node{}, tagCache: tags.Cache{}}
		if s.Root != nil {
			x.walk(s.Root, top, "")
		}
		return x.nodes
	})
	return s
}

// Pos returns the position of a path, or of its nearest existing parent. An item is named by index,
// as in clusters[g1].podCIDRs[0], or by its text, as in clusters[g1].podCIDRs[10.7.0.0/16]. Paths
// omit spec: dns.ttl is spec.dns.ttl.
func (s *Source) Pos(path string) diag.Pos {
	if s.Root == nil {
		return diag.Pos{File: s.File}
	}
	for ; path != ""; path = fieldpath.Parent(path) {
		if n, ok := s.index()[path]; ok {
			return s.NodePos(n)
		}
		inBody := path != "apiVersion" && path != "kind" && path != "metadata"
		if n, ok := s.index()["spec"]; ok && fieldpath.Parent(path) == "" && inBody {
			return s.NodePos(n)
		}
	}
	return s.NodePos(s.Root)
}

// Has reports whether the file has a value at a path. Missing values have defaults.
func (s *Source) Has(path string) bool {
	_, ok := s.index()[path]
	return ok
}

// indexer finds the node of every path.
type indexer struct {
	nodes    map[string]*yaml.Node
	tagCache tags.Cache
}

func (x *indexer) walk(n *yaml.Node, t reflect.Type, path string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == schema.DynamicType {
		t = reflect.TypeFor[[]schema.DynamicRule]()
		if n.Kind == yaml.MappingNode {
			t = t.Elem()
		}
	}
	switch {
	case n.Kind == yaml.SequenceNode && (t.Kind() == reflect.Slice || t == schema.HostnamesType):
		x.items(n, t, path)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			x.add(fieldpath.Key(path, n.Content[i].Value), n.Content[i])
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
	seen, naming := map[string]bool{}, tags.Naming(item)
	for i, child := range n.Content {
		p := fieldpath.Key(path, fieldpath.Label(seen, NodeName(child, naming), i))
		x.add(p, child)
		x.walk(child, item, p)
	}
	for _, child := range n.Content { // last: an index has precedence over an equal text
		if text, ok := syntax.PlainText(child); ok {
			x.add(fieldpath.Key(path, text), child)
		}
	}
}

func (x *indexer) fields(n *yaml.Node, t reflect.Type, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		for _, f := range x.tagCache.Of(t) {
			if f.Name != n.Content[i].Value {
				continue
			}
			p, value := fieldpath.Child(path, f.Name), n.Content[i+1]
			if syntax.IsNull(value) {
				value = n.Content[i] // an empty value has no position
			}
			x.add(p, value)
			x.walk(value, t.Field(f.Index).Type, p)
		}
	}
}

// add records the node of a path. It ignores later nodes of the same path.
func (x *indexer) add(path string, n *yaml.Node) {
	if _, ok := x.nodes[path]; !ok {
		x.nodes[path] = n
	}
}

// NodePos returns the position of a node, with its width on the first line.
func (s *Source) NodePos(n *yaml.Node) diag.Pos {
	p := diag.Pos{File: s.File, Line: n.Line, Column: n.Column, Width: 1}
	rest := s.line(n.Line)
	if s.isASCII()[max(n.Line-1, 0)%len(s.isASCII())] {
		rest = rest[min(n.Column-1, len(rest)):]
	} else {
		for range n.Column - 1 {
			_, size := utf8.DecodeRune(rest)
			rest = rest[size:]
		}
	}
	p.Width = max(utf8.RuneCount(firstLineText(n, rest)), 1)
	return p
}

// line returns a line of the file, counted from 1, without its line end.
func (s *Source) line(number int) []byte {
	lines := s.lines()
	if number < 1 || number > len(lines) {
		return nil
	}
	return bytes.TrimSuffix(lines[number-1], []byte("\r"))
}

// wholeLine returns the position of all text of a line.
func (s *Source) wholeLine(number int) diag.Pos {
	text := string(s.line(number))
	body := strings.TrimLeft(text, " \t")
	return diag.Pos{
		File: s.File, Line: number, Column: 1 + len(text) - len(body),
		Width: max(utf8.RuneCountInString(strings.TrimRight(body, " \t")), 1),
	}
}

// firstLineText returns the part of a node that is on its first line. rest is that line from the
// start of the node.
func firstLineText(n *yaml.Node, rest []byte) []byte {
	switch {
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return rest[:QuotedLen(rest)]
	case n.Kind == yaml.ScalarNode && n.Value != "" && bytes.HasPrefix(rest, []byte(n.Value)):
		return rest[:len(n.Value)]
	case n.Style&yaml.FlowStyle != 0:
		return rest[:flowLen(rest)]
	}
	text, _, _ := bytes.Cut(rest, []byte(" #"))
	return bytes.TrimRight(text, " \t")
}

// QuotedLen returns the length of the quoted scalar at the beginning of text, or
// len(text) if the scalar continues on the next line.
func QuotedLen(text []byte) int {
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

// flowLen returns the length of the flow collection at the beginning of text, or
// len(text) if the collection continues on the next line.
func flowLen(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"', '\'':
			i += QuotedLen(text[i:]) - 1
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

// NodeName returns the name of a list item that is not decoded yet.
func NodeName(n *yaml.Node, naming []string) string {
	if len(naming) == 0 || n.Kind != yaml.MappingNode {
		return ""
	}
	parts := make([]string, len(naming))
	for i := len(n.Content) - 2; i >= 0; i -= 2 { // backwards: the first of two equal keys wins
		if position := slices.Index(naming, n.Content[i].Value); position >= 0 {
			parts[position], _ = syntax.PlainText(n.Content[i+1])
		}
	}
	return fieldpath.Name(parts...)
}

// ClipValues returns findings whose texts contain at most diag.MaxQuoted characters of any value of
// the file. Findings quote keys, and diag clips quoted texts.
func (s *Source) ClipValues(list diag.List) diag.List {
	if len(list) == 0 || s.Root == nil {
		return list
	}
	var long []string
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && diag.Clip(n.Value) != n.Value {
			long = append(long, n.Value, diag.Clip(n.Value))
		}
		for i, child := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				walk(child)
			}
		}
	}
	walk(s.Root)
	if long == nil {
		return list
	}
	clip := strings.NewReplacer(long...)
	out := slices.Clone(list)
	for i := range out {
		out[i].Summary, out[i].Hint = clip.Replace(out[i].Summary), clip.Replace(out[i].Hint)
	}
	return out
}

// WithPos adds positions. A default has no position: if it conflicts with a value in the file, the
// finding gets the position of that value.
func (s *Source) WithPos(f diag.Diagnostic) diag.Diagnostic {
	var others []diag.Related
	for _, r := range f.Related {
		if s.Has(r.Path) {
			others = append(others, diag.Related{Path: r.Path, Pos: s.Pos(r.Path)})
		}
	}
	f.Pos, f.Related = s.Pos(f.Path), others
	if !s.Has(f.Path) && len(others) > 0 {
		f.Pos, f.Related = others[0].Pos, others[1:]
	}
	return f
}
