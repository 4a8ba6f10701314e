package plan

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// maxDrawn is how many clusters a map shows; of more nobody sees anything.
const maxDrawn = 16

// Styles of a map: green comes, red goes, yellow changes.
const (
	styleNew     = "stroke:#2da44e,stroke-width:3px"
	styleGone    = "stroke:#cf222e,stroke-width:3px,stroke-dasharray:5 5"
	styleChanged = "stroke:#bf8700,stroke-width:3px"
)

// maps draws the clusters and the links between them, before and after, when one of them
// changes.
func (m *markdown) maps(r *Report) error {
	changed := changedEnds(r.Plan)
	if r.Want == nil || len(changed) == 0 {
		return nil
	}
	want, err := readSide("the new tree", r.Want)
	if err != nil {
		return err
	}
	have, err := readSide("the published tree", r.Have)
	if err != nil {
		return err
	}
	d := drawing{changed: changed}
	m.text("<details><summary>Map</summary>\n\n")
	if len(have.fabric.Clusters) > 0 {
		m.text("Before:\n\n```mermaid\n%s```\n\n", d.side(have.fabric, want.fabric, styleGone))
	}
	m.text("After:\n\n```mermaid\n%s```\n\n</details>\n\n", d.side(want.fabric, have.fabric, styleNew))
	return nil
}

type drawing struct {
	changed map[string]diff.Op // clusters and pairs ("a - b") that the plan names
}

// changedEnds gives the clusters and pairs that entries of the plan are about.
func changedEnds(p *Plan) map[string]diff.Op {
	out := map[string]diff.Op{}
	for i := range p.Entries {
		e := &p.Entries[i]
		switch {
		case e.Kind == kindCluster || e.Kind == kindPair:
			out[e.Key] = e.Op
		case e.Cluster != "" && out[e.Cluster] == "":
			out[e.Cluster] = diff.Update
		}
	}
	return out
}

// side draws one side; style is of what the other side lacks.
func (d *drawing) side(f, other *fabric.Fabric, style string) string {
	shown := d.shown(f)
	var out, styles strings.Builder
	out.WriteString("flowchart LR\n")
	for i, name := range shown {
		fmt.Fprintf(&out, "  n%d[\"%s\"]\n", i, identifier(name))
		if other.Cluster(name) == nil {
			fmt.Fprintf(&styles, "  style n%d %s\n", i, style)
		} else if d.changed[name] != "" {
			fmt.Fprintf(&styles, "  style n%d %s\n", i, styleChanged)
		}
	}
	if rest := len(f.Clusters) - len(shown); rest > 0 {
		fmt.Fprintf(&out, "  more[\"and %d more\"]\n", rest)
	}
	graph, before, edges := f.Graph(), other.Graph(), 0
	for i, a := range shown {
		for j := i + 1; j < len(shown); j++ {
			b := shown[j]
			if !graph.Linked(a, b) {
				continue
			}
			line := "---"
			if driver := f.Link(a, b).Driver; driver != fabric.DriverWireguard {
				line = "-- " + identifier(driver) + " ---"
			}
			fmt.Fprintf(&out, "  n%d %s n%d\n", i, line, j)
			if !before.Linked(a, b) {
				fmt.Fprintf(&styles, "  linkStyle %d %s\n", edges, style)
			} else if d.changed[a+" - "+b] != "" {
				fmt.Fprintf(&styles, "  linkStyle %d %s\n", edges, styleChanged)
			}
			edges++
		}
	}
	return out.String() + styles.String()
}

// shown gives the clusters to draw, by name: those that change before others.
func (d *drawing) shown(f *fabric.Fabric) []string {
	names := make([]string, len(f.Clusters))
	for i := range names {
		names[i] = f.Clusters[i].Name
	}
	slices.SortStableFunc(names, func(a, b string) int {
		if x, y := d.changed[a] != "", d.changed[b] != ""; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	names = names[:min(len(names), maxDrawn)]
	slices.Sort(names)
	return names
}
