package clustermap

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/humanize"
)

// Limits of code hosting platforms for Mermaid. Above them, they show an error instead of the map.
const (
	maxMermaidClusters = MaxListed
	maxMermaidLinks    = 400
)

// Markdown returns a page with the map as Mermaid, which code hosting platforms draw, and a table
// of its clusters. picture is the name of the SVG file in the same directory. Names need no
// quoting, because they are DNS labels.
func (m *Map) Markdown(picture string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Clusterset %s\n\n", Identifier(m.Clusterset))
	linked := humanize.Plural(len(m.Links), "link")
	if m.MeshImplied {
		linked = "every two of them linked"
	}
	fmt.Fprintf(&out, "%s, %s. From the topology, without live state.\n\n", humanize.Plural(len(m.Clusters), "cluster"), linked)
	if len(m.Clusters) > maxMermaidClusters || len(m.Links) > maxMermaidLinks {
		fmt.Fprintf(&out, "![The map: too large to be drawn here](%s)\n\n", picture)
	} else {
		fmt.Fprintf(&out, "```mermaid\n%s```\n\n[The map with addresses and gateways](%s)\n\n", m.Mermaid(), picture)
	}
	out.WriteString("| cluster | pods | others see | gateways | exports |\n|---|---|---|---|---|\n")
	for i := range m.Clusters {
		c := &m.Clusters[i]
		global := "the same"
		if len(c.GlobalCIDRs) > 0 {
			global = strings.Join(c.GlobalCIDRs, ", ")
		}
		names := make([]string, len(c.Gateways))
		for j := range c.Gateways {
			names[j] = Identifier(c.Gateways[j].Name)
		}
		title := Identifier(c.Name)
		if c.Hub {
			title += " (hub)"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %d |\n", title, strings.Join(c.PodCIDRs, ", "), global, strings.Join(names, ", "), c.Exports)
	}
	return out.String()
}
