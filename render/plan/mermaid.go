package plan

import (
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
)

// maxMapClusters is the maximum number of clusters in the map of a comment. Larger maps are
// unreadable.
const maxMapClusters = 16

// maps writes a map of the clusters and their links before and after the change, if one of them
// changes.
func (m *markdown) maps(r *Report) error {
	changed := changedObjects(r.Plan)
	if r.Want == nil || len(changed) == 0 {
		return nil
	}
	want, err := newSnapshot("the new tree", r.Want)
	if err != nil {
		return err
	}
	have, err := newSnapshot("the published tree", r.Have)
	if err != nil {
		return err
	}
	m.text("<details><summary>Map</summary>\n\n")
	if len(have.fabric.Clusters) > 0 {
		m.text("Before:\n\n```mermaid\n%s```\n\n", sideMap(have.fabric, want.fabric, clustermap.Removed, changed).Mermaid())
	}
	m.text("After:\n\n```mermaid\n%s```\n\n</details>\n\n", sideMap(want.fabric, have.fabric, clustermap.Added, changed).Mermaid())
	return nil
}

// changedObjects returns the clusters and pairs ("a - b") of the plan's entries.
func changedObjects(p *Plan) map[string]diff.Op {
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

// sideMap returns the map of f. missingMark marks objects that other lacks.
func sideMap(
	f, other *fabric.Fabric, missingMark string, changed map[string]diff.Op,
) *clustermap.Map {
	m := clustermap.Subset(f, mapClusters(f, changed))
	for i := range m.Clusters {
		c := &m.Clusters[i]
		if other.Cluster(c.Name) == nil {
			c.Change = missingMark
		} else if changed[c.Name] != "" {
			c.Change = clustermap.Changed
		}
	}
	graph := other.Graph()
	for i := range m.Links {
		a, b := m.Links[i].Between[0], m.Links[i].Between[1]
		if !graph.Linked(a, b) {
			m.Links[i].Change = missingMark
		} else if changed[a+" - "+b] != "" {
			m.Links[i].Change = clustermap.Changed
		}
	}
	return m
}

// mapClusters returns the clusters on the map, by name. Changed clusters have precedence.
func mapClusters(f *fabric.Fabric, changed map[string]diff.Op) []string {
	names := f.ClusterNames()
	slices.SortStableFunc(names, func(a, b string) int {
		if x, y := changed[a] != "", changed[b] != ""; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	names = names[:min(len(names), maxMapClusters)]
	slices.Sort(names)
	return names
}
