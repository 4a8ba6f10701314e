package load

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/tags"
)

// Format returns a topology file with keys in the order of the reference, two spaces per level,
// items below their key, and no more than one empty line in a row. Comments move with the line
// below them, except at the top of the file. Text on one line stays on one line. The meaning does
// not change. A file with errors of Decode is not formatted; the list has the errors.
func Format(file string, raw []byte) ([]byte, diag.List) {
	_, src, list := Decode(file, raw)
	if list.HasErrors() {
		return nil, list
	}
	f := &formatter{tagCache: tags.Cache{}}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(raw), "\n"), "\n") {
		f.lines = append(f.lines, textLine{text: strings.TrimSuffix(line, "\r")})
	}
	out, err := f.document(src.Root)
	if err == nil {
		_, reparsed, errs := Decode(file, out)
		if errs.HasErrors() || !sameValue(src.Root, reparsed.Root) {
			err = fmt.Errorf("the result would have another meaning")
		}
	}
	if err != nil {
		return nil, diag.List{{Severity: diag.Error, Code: "not-formatted", Pos: src.NodePos(src.Root),
			Summary: "the file cannot be formatted: " + err.Error(), Hint: "write keys as `key: value`, one a line, with spaces before them"}}
	}
	return out, nil
}

// textLine is a line of a file. A line of a multi-line scalar is kept unchanged.
type textLine struct {
	text     string
	verbatim bool
}

func (l textLine) empty() bool { return !l.verbatim && strings.TrimSpace(l.text) == "" }

func (l textLine) comment() bool {
	return !l.verbatim && strings.HasPrefix(strings.TrimSpace(l.text), "#")
}

func (l textLine) indent() int { return len(l.text) - len(strings.TrimLeft(l.text, " ")) }

// formatter moves lines. The lines of a node and the comments above it stay together.
type formatter struct {
	lines    []textLine
	tagCache tags.Cache
}

func (f *formatter) document(root *yaml.Node) ([]byte, error) {
	if err := f.markMultiline(root, -1); err != nil {
		return nil, err
	}
	first := root.Line - 1
	if root.Style&yaml.FlowStyle != 0 || first > len(f.lines) {
		first = len(f.lines)
	}
	out := slices.Clone(f.lines[:first])
	body, err := f.node(root, reflect.TypeFor[schema.ClusterSet](), first, len(f.lines), 0)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	empty := true // the previous line; true at the top
	for _, line := range append(out, body...) {
		if line.empty() {
			empty = true
			continue
		}
		if empty && text.Len() > 0 {
			text.WriteByte('\n')
		}
		empty = false
		if !line.verbatim {
			line.text = strings.TrimRight(line.text, " \t\r")
		}
		text.WriteString(line.text + "\n")
	}
	return text.Bytes(), nil
}

// markMultiline marks the continuation lines of multi-line scalars, which must not change.
// parent is the indentation of the node's parent.
func (f *formatter) markMultiline(n *yaml.Node, parent int) error {
	if n.Line < 1 || n.Line > len(f.lines) {
		return fmt.Errorf("line %d is not found", n.Line)
	}
	switch {
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		if n.Style&yaml.FlowStyle == 0 {
			parent = n.Column - 1
		}
		for _, below := range n.Content {
			if err := f.markMultiline(below, parent); err != nil {
				return err
			}
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		for i := n.Line; i < len(f.lines) && (f.lines[i].empty() || f.lines[i].indent() > parent); i++ {
			f.lines[i].verbatim = true
		}
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return f.markQuoted(n)
	}
	return nil
}

func (f *formatter) markQuoted(n *yaml.Node) error {
	first := []rune(f.lines[n.Line-1].text)
	if n.Column < 1 || n.Column > len(first) {
		return fmt.Errorf("column %d of line %d is not found", n.Column, n.Line)
	}
	text := []byte(string(first[n.Column-1:]))
	for i := n.Line; document.QuotedLen(text) == len(text) && text[len(text)-1] != text[0] && i < len(f.lines); i++ {
		f.lines[i].verbatim = true
		text = append(append(text, '\n'), f.lines[i].text...)
	}
	return nil
}

// node returns the lines between from and to, which hold a node and its comments, with the wanted
// indentation of the node.
func (f *formatter) node(n *yaml.Node, t reflect.Type, from, to, indent int) ([]textLine, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == schema.DynamicType {
		if t = reflect.TypeFor[[]schema.DynamicRule](); n.Kind == yaml.MappingNode {
			t = t.Elem()
		}
	}
	column := n.Column - 1
	switch {
	case n.Kind == yaml.ScalarNode || n.Style&yaml.FlowStyle != 0:
		return indentBy(f.lines[from:to], indent-column), nil
	case n.Kind == yaml.SequenceNode:
		return f.sequence(n, t, from, to, indent)
	}
	return f.mapping(n, t, from, to, indent)
}

func (f *formatter) mapping(
	n *yaml.Node, t reflect.Type, from, to, indent int,
) ([]textLine, error) {
	type entry struct {
		rank  int
		lines []textLine
	}
	starts := make([]int, 0, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		line := n.Content[i].Line - 1
		if line < from || line >= to || f.lines[line].indent() != n.Column-1 || n.Content[i].Column != n.Column {
			return nil, fmt.Errorf("line %d does not begin with a key", line+1)
		}
		starts = append(starts, line)
	}
	begins, end := f.splitParts(starts, from, to, n.Column-1)
	entries := make([]entry, 0, len(starts))
	for i, line := range starts {
		key, value, after := n.Content[2*i], n.Content[2*i+1], end
		if i+1 < len(starts) {
			after = begins[i+1]
		}
		rank, inner := f.fieldType(t, key.Value)
		e := entry{rank: rank, lines: indentBy(f.lines[begins[i]:line+1], indent-(n.Column-1))}
		var below []textLine
		var err error
		switch {
		case value.Line-1 > line && value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0:
			below, err = f.node(value, inner, line+1, after, indent+2)
		case value.Line-1 > line && value.Kind == yaml.SequenceNode && value.Style&yaml.FlowStyle == 0:
			below, err = f.node(value, inner, line+1, after, indent)
		default:
			below = indentBy(f.lines[line+1:after], indent-(n.Column-1))
		}
		if err != nil {
			return nil, err
		}
		e.lines = append(e.lines, below...)
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.rank, b.rank) })
	var out []textLine
	for _, e := range entries {
		out = append(out, e.lines...)
	}
	return append(out, indentBy(f.lines[end:to], indent-(n.Column-1))...), nil
}

// fieldType returns the position of a key in the reference, and the type of its value.
func (f *formatter) fieldType(t reflect.Type, key string) (int, reflect.Type) {
	if t.Kind() == reflect.Map {
		return 0, t.Elem()
	}
	if t.Kind() == reflect.Struct {
		for _, field := range f.tagCache.Of(t) {
			if field.Name == key {
				return field.Index, t.Field(field.Index).Type
			}
		}
	}
	return 0, t
}

func (f *formatter) sequence(
	n *yaml.Node, t reflect.Type, from, to, indent int,
) ([]textLine, error) {
	item := reflect.TypeFor[string]()
	if t.Kind() == reflect.Slice {
		item = t.Elem()
	}
	column := n.Column - 1
	starts := make([]int, 0, len(n.Content))
	for i, child := range n.Content {
		line, least := child.Line-1, from
		if i > 0 {
			least = starts[i-1] + 1
		}
		for ; line >= least && (f.lines[line].indent() != column || !strings.HasPrefix(f.lines[line].text[column:], "-")); line-- {
			continue // a comment or nothing may follow the dash
		}
		if line < least || line >= to {
			return nil, fmt.Errorf("the item of line %d does not begin with a dash", child.Line)
		}
		starts = append(starts, line)
	}
	begins, end := f.splitParts(starts, from, to, column)
	var out []textLine
	for i, line := range starts {
		after := end
		if i+1 < len(starts) {
			after = begins[i+1]
		}
		out = append(out, indentBy(f.lines[begins[i]:line], indent-column)...)
		f.lines[line].text = strings.Repeat(" ", column+1) + f.lines[line].text[column+1:]
		body, err := f.node(n.Content[i], item, line, after, indent+2)
		if err != nil {
			return nil, err
		}
		k := 0
		for ; k < len(body) && (body[k].empty() || body[k].comment()); k++ {
			body[k].text = strings.Repeat(" ", indent) + strings.TrimSpace(body[k].text)
		}
		if k == len(body) || body[k].indent() != indent+2 {
			return nil, fmt.Errorf("the item of line %d does not begin with a value", line+1)
		}
		body[k].text = body[k].text[:indent] + "-" + body[k].text[indent+1:]
		out = append(out, body...)
	}
	return append(out, indentBy(f.lines[end:to], indent-column)...), nil
}

// splitParts returns the first line of each key or item and the end of the last one. The keys are
// on the lines of starts, with the given indentation. Comments above a key belong to it; comments
// with more indentation belong to the previous key.
func (f *formatter) splitParts(starts []int, from, to, indent int) (begins []int, end int) {
	boundary := func(least, at int) int {
		begin := at
		for begin > least && (f.lines[begin-1].empty() || f.lines[begin-1].comment()) {
			begin--
		}
		for i := begin; i < at && (f.lines[i].empty() || f.lines[i].indent() > indent); i++ {
			if !f.lines[i].empty() {
				begin = i + 1
			}
		}
		return begin
	}
	for i, at := range starts {
		if i == 0 {
			begins = append(begins, from)
			continue
		}
		begins = append(begins, boundary(starts[i-1]+1, at))
	}
	return begins, boundary(starts[len(starts)-1]+1, to)
}

// indentBy returns lines with another indentation.
func indentBy(lines []textLine, by int) []textLine {
	out := slices.Clone(lines)
	for i := range out {
		switch text := out[i].text; {
		case text == "":
		case by > 0:
			out[i].text = strings.Repeat(" ", by) + text
		default:
			out[i].text = text[min(-by, out[i].indent()):]
		}
	}
	return out
}

// sameValue reports whether two nodes have the same value. The order of keys does not matter.
func sameValue(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.ShortTag() != b.ShortTag() || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	if a.Kind != yaml.MappingNode {
		return slices.EqualFunc(a.Content, b.Content, sameValue)
	}
	values := map[string]*yaml.Node{}
	for i := 0; i < len(b.Content); i += 2 {
		values[b.Content[i].Value] = b.Content[i+1]
	}
	for i := 0; i < len(a.Content); i += 2 {
		if other := values[a.Content[i].Value]; other == nil || !sameValue(a.Content[i+1], other) {
			return false
		}
	}
	return true
}
