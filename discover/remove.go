package discover

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Remove removes a cluster from a topology's text: its entry, its links, its name in lists
// of clusters, and the exports that no other cluster offers. Comments inside and directly
// above the removed lines are removed as well. The rest of the text does not change. removed
// lists the paths of the removed items, the cluster's entry last.
//
// A list of permitted clusters is never emptied, because an empty list could permit all.
func Remove(raw []byte, cluster string) (out []byte, removed []string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, nil, fmt.Errorf("read topology: %w", err)
	}
	spec := &document
	if len(spec.Content) == 1 {
		spec = child(spec.Content[0], "spec")
	}
	if spec == nil {
		return nil, nil, fmt.Errorf("there is no spec in it")
	}
	r := &textEdit{lines: strings.SplitAfter(string(raw), "\n"), cluster: cluster}
	r.removeLinks(child(spec, "links"))
	if c := child(spec, "connectivity"); c != nil {
		r.removeName(child(c, "hubs"), "connectivity.hubs", false)
		if pairs := child(c, "links"); pairs != nil {
			r.removeItems(pairs, "connectivity.links", func(_ int, pair *yaml.Node) bool { return r.indexOf(pair) >= 0 })
		}
	}
	if d := child(spec, "dynamicExports"); d != nil {
		rules := []*yaml.Node{d}
		if d.Kind == yaml.SequenceNode {
			rules = d.Content
		}
		for i, rule := range rules {
			r.removeName(child(rule, "clusters"), fmt.Sprintf("dynamicExports[%d].clusters", i),
				true)
		}
	}
	r.removeExports(child(spec, "exports"))
	clusters := child(spec, "clusters")
	if clusters == nil {
		return nil, nil, fmt.Errorf("there is no clusters in it")
	}
	r.removeItems(clusters, "clusters", func(_ int, c *yaml.Node) bool { return scalarValue(c, "name") == cluster })
	out, err = r.apply()
	return out, r.removed, err
}

// apply returns the text without the removed parts.
func (r *textEdit) apply() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	slices.SortFunc(r.spans, func(a, b span) int {
		return slices.Compare([]int{b.line, b.column}, []int{a.line, a.column})
	})
	for _, s := range r.spans { // some are within others
		if s.line == s.toLine {
			line := r.lines[s.line]
			r.lines[s.line] = line[:s.column] + line[s.toColumn:]
			continue
		}
		for i := s.line; i < s.toLine; i++ {
			r.lines[i] = ""
		}
	}
	return []byte(strings.Join(r.lines, "")), nil
}

// textEdit is the state of an edit of a topology's text.
type textEdit struct {
	lines   []string
	cluster string
	spans   []span
	removed []string
	err     error
}

// span is a part of the text; the end is exclusive. Start and end are on one line, or both
// are at the start of a line. Lines and columns count from 0.
type span struct{ line, column, toLine, toColumn int }

func (r *textEdit) fail(at *yaml.Node, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("line %d: "+format, append([]any{at.Line}, args...)...)
	}
}

// indexOf returns the cluster's index in a list of names.
func (r *textEdit) indexOf(list *yaml.Node) int {
	if list == nil || list.Kind != yaml.SequenceNode {
		return -1
	}
	return slices.IndexFunc(list.Content, func(n *yaml.Node) bool { return n.Value == r.cluster })
}

func (r *textEdit) removeLinks(list *yaml.Node) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	r.removeItems(list, "links", func(_ int, link *yaml.Node) bool { return r.indexOf(child(link, "between")) >= 0 })
}

func (r *textEdit) removeExports(list *yaml.Node) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	onlyExporter := func(e *yaml.Node) bool {
		exporters := child(e, "clusters")
		return r.indexOf(exporters) >= 0 && len(exporters.Content) == 1
	}
	for _, e := range list.Content {
		if onlyExporter(e) {
			continue
		}
		path := "exports[" + scalarValue(e, "namespace") + "/" + scalarValue(e, "name") + "]"
		r.removeName(child(e, "clusters"), path+".clusters", false)
		if allow := child(e, "allow"); allow != nil {
			r.removeName(child(allow, "clusters"), path+".allow.clusters", true)
		}
		if balance := child(e, "balance"); balance != nil {
			r.removeName(child(balance, "order"), path+".balance.order", false)
			r.removeWeight(child(balance, "weights"), path+".balance.weights")
		}
	}
	r.removeItems(list, "exports", func(_ int, e *yaml.Node) bool { return onlyExporter(e) })
}

// removeName removes the cluster from a list of names.
func (r *textEdit) removeName(list *yaml.Node, path string, isAllowList bool) {
	i := r.indexOf(list)
	switch {
	case i < 0:
	case len(list.Content) == 1 && isAllowList:
		r.fail(list.Content[i], "%s lists only %s, and without the list all clusters would be allowed: list other clusters first", path, r.cluster)
	default:
		r.removeItems(list, path, func(at int, _ *yaml.Node) bool { return at == i })
	}
}

func (r *textEdit) removeWeight(mapping *yaml.Node, path string) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if key.Value != r.cluster {
			continue
		}
		r.removed = append(r.removed, path+"["+r.cluster+"]")
		var before, after *yaml.Node
		if i > 0 {
			before = mapping.Content[i-1]
		}
		if i+2 < len(mapping.Content) {
			after = mapping.Content[i+2]
		}
		if mapping.Style&yaml.FlowStyle != 0 {
			r.removeFlowItems(key, value, before, after)
		} else {
			r.spans = append(r.spans, span{key.Line - 1, 0, value.Line, 0})
		}
	}
}

// removeItems removes the matching items of a list.
func (r *textEdit) removeItems(list *yaml.Node, path string, matches func(int, *yaml.Node) bool) {
	if list.Kind != yaml.SequenceNode {
		return
	}
	flow := list.Style&yaml.FlowStyle != 0
	var previous, last *yaml.Node // last: the last removed item, not cut yet
	var first *yaml.Node
	for i, item := range list.Content {
		if !matches(i, item) {
			if flow && first != nil {
				r.removeFlowItems(first, last, previous, item)
				first = nil
			}
			previous = item
			continue
		}
		r.removed = append(r.removed, itemPath(path, item))
		if flow && first == nil {
			first = item
		}
		if last = item; !flow {
			r.removeBlockItem(item)
		}
	}
	if flow && first != nil {
		r.removeFlowItems(first, last, previous, nil)
	}
}

// itemPath returns the path of an item as messages show it.
func itemPath(path string, item *yaml.Node) string {
	switch {
	case item.Kind == yaml.ScalarNode:
		return path + "[" + item.Value + "]"
	case item.Kind == yaml.SequenceNode:
		var names []string
		for _, n := range item.Content {
			names = append(names, n.Value)
		}
		return path + "[" + strings.Join(names, ",") + "]"
	case scalarValue(item, "namespace") != "":
		return path + "[" + scalarValue(item, "namespace") + "/" + scalarValue(item, "name") + "]"
	case child(item, "between") != nil:
		return itemPath(path, child(item, "between"))
	}
	return path + "[" + scalarValue(item, "name") + "]"
}

// removeBlockItem removes all lines of an item that starts with a hyphen.
func (r *textEdit) removeBlockItem(item *yaml.Node) {
	first := item.Line - 1
	if strings.TrimSpace(r.lines[first][:item.Column-1]) == "" { // the hyphen has a line of its own
		for first--; first > 0 && !strings.HasPrefix(strings.TrimSpace(r.lines[first]), "-"); first-- {
		}
	}
	dash := indentation(r.lines[first])
	if !strings.HasPrefix(r.lines[first][dash:], "-") {
		r.fail(item, "the item is not on lines of its own that begin with a hyphen: remove it by hand")
		return
	}
	end := first + 1
	for i := end; i < len(r.lines); i++ {
		if strings.TrimSpace(r.lines[i]) == "" {
			continue // part of the item only if a deeper line follows
		}
		if indentation(r.lines[i]) <= dash {
			break
		}
		end = i + 1
	}
	for first > 0 && indentation(r.lines[first-1]) == dash && strings.HasPrefix(r.lines[first-1][dash:], "#") {
		first--
	}
	// Do not leave two empty lines in a row.
	if first > 0 && strings.TrimSpace(r.lines[first-1]) == "" && (end >= len(r.lines) || strings.TrimSpace(r.lines[end]) == "") {
		first--
	}
	r.spans = append(r.spans, span{first, 0, end, 0})
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// removeFlowItems removes the nodes from one to another of a list in brackets. before and after are
// the remaining neighbours, nil if absent.
func (r *textEdit) removeFlowItems(from, to, before, after *yaml.Node) {
	for _, n := range []*yaml.Node{from, to, before, after} {
		if n != nil && n.Line != from.Line {
			r.fail(n, "the list in brackets is on several lines: write it on one line, or with hyphens")
			return
		}
	}
	s := span{from.Line - 1, from.Column - 1, from.Line - 1, 0}
	switch {
	case after != nil:
		s.toColumn = after.Column - 1
	default:
		s.toColumn = r.endColumn(to)
		if before != nil {
			s.column = r.endColumn(before)
		}
	}
	if r.err == nil {
		r.spans = append(r.spans, s)
	}
}

// endColumn returns the column after a node that is on one line.
func (r *textEdit) endColumn(n *yaml.Node) int {
	line, depth, quote := r.lines[n.Line-1], 0, byte(0)
	for i := n.Column - 1; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '[' || c == '{':
			depth++
		case depth == 0 && (c == ',' || c == ']' || c == '}'):
			return i
		case c == ']' || c == '}':
			depth--
		}
	}
	r.fail(n, "the list in brackets is on several lines: write it on one line, or with hyphens")
	return len(line)
}

func scalarValue(mapping *yaml.Node, key string) string {
	if n := child(mapping, key); n != nil {
		return n.Value
	}
	return ""
}
