package discover

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/schema"
)

// ExportYAML returns an export as an item of spec.exports, without indentation.
func ExportYAML(e schema.Export) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("- name: %s", scalar(e.Name))
	line("  namespace: %s", scalar(e.Namespace))
	if e.Type != "" {
		line("  type: %s", e.Type)
	}
	line("  clusters: [%s]", scalars(e.Clusters))
	if e.Allow != nil {
		line("  allow: {clusters: [%s]}", scalars(e.Allow.Clusters))
	}
	line("  ports:")
	for _, p := range e.Ports {
		text := fmt.Sprintf("port: %d", p.Port)
		if p.Name != "" {
			text = "name: " + scalar(p.Name) + ", " + text
		}
		if p.Protocol != "" {
			text += ", protocol: " + p.Protocol
		}
		line("  - {%s}", text)
	}
	return out.String()
}

func scalars(names []string) string {
	var out []string
	for _, name := range names {
		out = append(out, scalar(name))
	}
	return strings.Join(out, ", ")
}

// AddExport adds an ExportYAML entry to a topology's text, after the last export or at the end of
// spec. The rest of the text does not change.
func AddExport(raw []byte, entry string) ([]byte, error) {
	spec, err := specNode(raw)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(raw), "\n")
	list := child(spec, "exports")
	switch {
	case list != nil && list.Kind == yaml.SequenceNode && len(list.Content) > 0:
		return appendItem(raw, list, entry)
	case list != nil && (list.Kind == yaml.ScalarNode && list.Tag == "!!null" || list.Kind == yaml.SequenceNode):
		// An empty value or empty brackets.
		key := keyNode(spec, "exports")
		at := key.Line - 1
		if list.Line != key.Line && list.Kind == yaml.SequenceNode {
			return nil, fmt.Errorf("line %d: exports has empty brackets on a line of their own: remove them", list.Line)
		}
		head, rest, _ := strings.Cut(lines[at], ":")
		rest = strings.Replace(rest, "[]", "", 1)
		rest = strings.TrimRight(strings.Replace(rest, "null", "", 1), " \r\n")
		lines[at] = head + ":" + rest + "\n" + indented(entry, strings.Repeat(" ", key.Column-1))
		return []byte(strings.Join(lines, "")), nil
	case list != nil:
		return nil, fmt.Errorf("line %d: exports is not a list", list.Line)
	}
	indentText := strings.Repeat(" ", spec.Content[0].Column-1)
	end := len(lines)
	for at := spec.Content[0].Line; at < len(lines); at++ {
		if strings.TrimSpace(lines[at]) != "" && indentation(lines[at]) < len(indentText) && !strings.HasPrefix(lines[at], "#") {
			end = at // the key after spec
			break
		}
	}
	for end > 0 && strings.TrimSpace(lines[end-1]) == "" {
		end--
	}
	added := indentText + "exports:\n" + indented(entry, indentText)
	if !strings.HasSuffix(lines[end-1], "\n") {
		added = "\n" + strings.TrimSuffix(added, "\n")
	}
	if strings.HasSuffix(lines[0], "\r\n") {
		added = strings.ReplaceAll(added, "\n", "\r\n")
	}
	return []byte(strings.Join(lines[:end], "") + added + strings.Join(lines[end:], "")), nil
}

// AddExportClusters adds clusters to an export, and allow to its allow list. The rest of the text
// does not change.
func AddExportClusters(raw []byte, id string, clusters, allow []string) ([]byte, error) {
	spec, err := specNode(raw)
	if err != nil {
		return nil, err
	}
	export := exportNode(spec, id)
	if export == nil {
		return nil, fmt.Errorf("there is no export %s", id)
	}
	edits := &textEdit{lines: strings.SplitAfter(string(raw), "\n")}
	allowed := child(export, "allow")
	if allowed != nil {
		allowed = child(allowed, "clusters")
	}
	if len(allow) > 0 && allowed == nil {
		return nil, fmt.Errorf("line %d: export %s has no list of allowed clusters, so all clusters may reach it: add the list by hand", export.Line, id)
	}
	// Edit the lower list first, so that line numbers remain correct.
	type addition struct {
		list  *yaml.Node
		names []string
	}
	for _, a := range slices.SortedFunc(slices.Values([]addition{{child(export, "clusters"), clusters}, {allowed, allow}}), func(a, b addition) int {
		return position(b.list) - position(a.list)
	}) {
		if len(a.names) > 0 {
			edits.appendNames(a.list, a.names)
		}
	}
	if edits.err != nil {
		return nil, edits.err
	}
	return []byte(strings.Join(edits.lines, "")), nil
}

// position returns a number that orders nodes by their position in the text; 0 for nil.
func position(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return n.Line<<16 + n.Column
}

// appendNames adds names to a list that is not empty.
func (r *textEdit) appendNames(list *yaml.Node, names []string) {
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		r.err = fmt.Errorf("a list of clusters is empty or missing: add the clusters by hand")
		return
	}
	last := list.Content[len(list.Content)-1]
	if list.Style&yaml.FlowStyle != 0 {
		at := r.endColumn(last)
		line := r.lines[last.Line-1]
		r.lines[last.Line-1] = line[:at] + ", " + scalars(names) + line[at:]
		return
	}
	line := r.lines[last.Line-1]
	dash := line[:indentation(line)]
	if !strings.HasPrefix(line[indentation(line):], "-") {
		r.fail(last, "a list of clusters is not on lines that begin with a hyphen: add the clusters by hand")
		return
	}
	text := strings.TrimSuffix(line, "\n")
	end := "\n"
	if strings.HasSuffix(text, "\r") {
		text, end = strings.TrimSuffix(text, "\r"), "\r\n"
	}
	for _, name := range names {
		text += end + dash + "- " + scalar(name)
	}
	if strings.HasSuffix(line, "\n") {
		text += end
	}
	r.lines[last.Line-1] = text
}

// RemoveExport removes an export from a topology's text, or only clusters from it if some remain.
// Comments inside and directly above the removed lines are removed as well. removed lists the paths
// of the removed items.
func RemoveExport(raw []byte, id string, clusters []string) (
	out []byte, removed []string, err error,
) {
	spec, err := specNode(raw)
	if err != nil {
		return nil, nil, err
	}
	export := exportNode(spec, id)
	if export == nil {
		return nil, nil, fmt.Errorf("there is no export %s", id)
	}
	r := &textEdit{lines: strings.SplitAfter(string(raw), "\n")}
	exporters := child(export, "clusters")
	all := exporters != nil && !slices.ContainsFunc(exporters.Content, func(n *yaml.Node) bool { return !slices.Contains(clusters, n.Value) })
	if len(clusters) == 0 || all {
		r.removeItems(child(spec, "exports"), "exports", func(_ int, e *yaml.Node) bool { return e == export })
	} else if exporters != nil {
		path := "exports[" + id + "]"
		r.removeItems(exporters, path+".clusters", func(_ int, n *yaml.Node) bool { return slices.Contains(clusters, n.Value) })
		if balance := child(export, "balance"); balance != nil {
			for _, r.cluster = range clusters {
				r.removeName(child(balance, "order"), path+".balance.order", false)
				r.removeWeight(child(balance, "weights"), path+".balance.weights")
			}
		}
	}
	out, err = r.apply()
	return out, r.removed, err
}

// specNode returns the mapping spec of a topology's text.
func specNode(raw []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	if len(document.Content) == 1 {
		if spec := child(document.Content[0], "spec"); spec != nil && spec.Kind == yaml.MappingNode && len(spec.Content) > 0 {
			if spec.Style&yaml.FlowStyle != 0 {
				return nil, fmt.Errorf("line %d: spec is in brackets: write it in lines", spec.Line)
			}
			return spec, nil
		}
	}
	return nil, fmt.Errorf("there is no spec in it")
}

// exportNode returns an export by namespace/name; nil if absent.
func exportNode(spec *yaml.Node, id string) *yaml.Node {
	list := child(spec, "exports")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	i := slices.IndexFunc(list.Content, func(e *yaml.Node) bool { return scalarValue(e, "namespace")+"/"+scalarValue(e, "name") == id })
	if i < 0 {
		return nil
	}
	return list.Content[i]
}

func keyNode(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i]
		}
	}
	return nil
}
