package clustermap

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/schema/fabric"
)

// Styles of nodes and edges in Mermaid: added is green, removed red, changed yellow. The
// states up, down and partly up have the same colours.
const (
	mermaidGreen  = "stroke:#2da44e,stroke-width:3px"
	mermaidRed    = "stroke:#cf222e,stroke-width:3px,stroke-dasharray:5 5"
	mermaidYellow = "stroke:#bf8700,stroke-width:3px"
)

func mermaidStyle(change, state string) string {
	switch tone(change, state) {
	case svg.Good:
		return mermaidGreen
	case svg.Bad:
		return mermaidRed
	case svg.Fair:
		return mermaidYellow
	}
	return ""
}

// Mermaid returns the map as a flowchart that code hosting platforms draw. Names need no quoting,
// because they are DNS labels.
func (m *Map) Mermaid() string {
	var out, styles strings.Builder
	out.WriteString("flowchart LR\n")
	index := map[string]int{}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		index[c.Name] = i
		fmt.Fprintf(&out, "  n%d[\"%s\"]\n", i, Identifier(c.Name))
		if style := mermaidStyle(c.Change, c.State); style != "" {
			fmt.Fprintf(&styles, "  style n%d %s\n", i, style)
		}
	}
	if m.Omitted > 0 {
		fmt.Fprintf(&out, "  more[\"and %d more\"]\n", m.Omitted)
	}
	if m.MeshImplied {
		out.WriteString("  rest[\"every two clusters are linked; drawn are the links that differ\"]\n")
	}
	for i, l := range m.Links {
		line := "---"
		if label := l.label(); label != "" {
			line = "-- " + label + " ---"
		}
		fmt.Fprintf(&out, "  n%d %s n%d\n", index[l.Between[0]], line, index[l.Between[1]])
		if style := mermaidStyle(l.Change, l.State); style != "" {
			fmt.Fprintf(&styles, "  linkStyle %d %s\n", i, style)
		}
	}
	return out.String() + styles.String()
}

// label returns the label of a link: its driver, unless it is WireGuard, and its round-trip time.
func (l *Link) label() string {
	driver := ""
	if l.Driver != fabric.DriverWireguard {
		driver = Identifier(l.Driver)
	}
	return strings.Join(appendSome(nil, driver, l.measured()), ", ")
}

// measured returns the probe results of a link.
func (l *Link) measured() string {
	var parts []string
	if l.RTT > 0 {
		parts = append(parts, fmt.Sprintf("%.1f ms", float64(l.RTT)/1000))
	}
	if l.Loss > 0 {
		parts = append(parts, fmt.Sprintf("%.0f%% lost", l.Loss*100))
	}
	return strings.Join(parts, ", ")
}

// DOT returns the map in the language of Graphviz.
func (m *Map) DOT() string {
	var out strings.Builder
	fmt.Fprintf(&out, "graph \"%s\" {\n  node [shape=box, style=rounded];\n", Identifier(m.Clusterset))
	if m.MeshImplied {
		out.WriteString("  label=\"every two clusters are linked; drawn are the links that differ\";\n")
	}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		fmt.Fprintf(&out, "  \"%s\"%s;\n", Identifier(c.Name), dotAttributes(c.Change, c.State, strings.Join(c.lines(), `\n`)))
	}
	if m.Omitted > 0 {
		fmt.Fprintf(&out, "  \"and %d more\" [shape=plaintext];\n", m.Omitted)
	}
	for _, l := range m.Links {
		fmt.Fprintf(&out, "  \"%s\" -- \"%s\"%s;\n", Identifier(l.Between[0]), Identifier(l.Between[1]),
			dotAttributes(l.Change, l.State, l.label()))
	}
	out.WriteString("}\n")
	return out.String()
}

func dotAttributes(change, state, label string) string {
	var parts []string
	if label != "" {
		parts = append(parts, `label="`+label+`"`)
	}
	switch tone(change, state) {
	case svg.Good:
		parts = append(parts, `color="#2da44e"`)
	case svg.Bad:
		parts = append(parts, `color="#cf222e"`, "style=dashed")
	case svg.Fair:
		parts = append(parts, `color="#bf8700"`)
	}
	if len(parts) == 0 {
		return ""
	}
	return " [" + strings.Join(parts, ", ") + "]"
}

// lines returns the text of a cluster. No character of it needs quoting in any format.
func (c *Cluster) lines() []string {
	title := Identifier(c.Name)
	if c.Hub {
		title += " (hub)"
	}
	lines := []string{title, "pods " + summarize(c.PodCIDRs)}
	if len(c.GlobalCIDRs) > 0 {
		lines = append(lines, "global "+summarize(c.GlobalCIDRs))
	} else {
		lines = append(lines, "flat")
	}
	return lines
}

// summarize returns the first item of a list and the number of the other items.
func summarize(list []string) string {
	switch len(list) {
	case 0:
		return "none"
	case 1:
		return list[0]
	}
	return fmt.Sprintf("%s +%d", list[0], len(list)-1)
}

// Identifier replaces the characters of a text that are not allowed in DNS names, except _, by _.
func Identifier(text string) string {
	return strings.Map(func(r rune) rune {
		if fabric.IsLabelRune(r) || r == '.' || r == '_' {
			return r
		}
		return '_'
	}, text)
}

// tone returns the colour of a change or a state.
func tone(change, state string) svg.Tone {
	switch {
	case change == Added || change == "" && state == Up:
		return svg.Good
	case change == Removed || change == "" && state == Down:
		return svg.Bad
	case change == Changed || state == Degraded:
		return svg.Fair
	case state == Unknown:
		return svg.Dim
	}
	return svg.Plain
}
