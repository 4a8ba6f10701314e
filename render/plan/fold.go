package plan

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
)

// Group contains entries with the same change of several objects. One edit often causes many.
type Group struct {
	Entries  []Entry  // one or more, in the order of the plan
	Clusters []string // changed clusters; empty = the clusterset
}

// Groups groups entries at one topology position that differ only in their objects. The order is:
// the clusterset, several clusters, single clusters.
func (p *Plan) Groups() []Group {
	out := groupEntries(p.Entries, groupKey)
	rank := func(g Group) int {
		switch len(g.Clusters) {
		case 0:
			return 0
		case 1:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Group) int { return rank(a) - rank(b) })
	return out
}

// groupEntries groups entries with the same key, in the order of their first entries.
func groupEntries(entries []Entry, key func(*Entry) string) []Group {
	index, out := map[string]int{}, []Group{}
	for _, e := range entries {
		k := key(&e)
		position, known := index[k]
		if !known {
			position = len(out)
			index[k], out = position, append(out, Group{})
		}
		out[position].Entries = append(out[position].Entries, e)
		if e.Cluster != "" && !slices.Contains(out[position].Clusters, e.Cluster) {
			out[position].Clusters = append(out[position].Clusters, e.Cluster)
		}
	}
	return out
}

// groupKey returns a key that is equal for entries of one group. Only updates with a position are
// grouped across clusters.
func groupKey(e *Entry) string {
	if e.Kind == kindFile || e.Kind == kindSetting {
		return e.Kind + " " + e.Key
	}
	cluster := e.Cluster
	if e.Source != "" && e.Op == diff.Update {
		cluster = ""
	}
	if e.Op == diff.Delete { // the plan does not print its fields
		return fmt.Sprintf("%s %s %q %q", e.Op, e.Kind, cluster, e.Remark)
	}
	return fmt.Sprintf("%s %s %q %q %q %v", e.Op, e.Kind, cluster, e.Source, e.Remark, e.Fields)
}

// Title returns the kind and names of the group's objects, with their number if there are several.
func (g *Group) Title() string {
	first := &g.Entries[0]
	if len(g.Entries) == 1 {
		return first.Kind + " " + first.Key
	}
	names := make([]string, len(g.Entries))
	for i, e := range g.Entries {
		names[i] = e.Key
	}
	plural := first.Kind + "s"
	switch first.Kind {
	case kindClusterExport:
		plural = "exports in clusters"
	case kindKeys, kindAgents:
		plural = first.Kind
	}
	return fmt.Sprintf("%d %s: %s", len(names), plural, humanize.FirstN(names, maxNames))
}

// heading returns the title of the group's section.
func (g *Group) heading(clusterset string) string {
	switch len(g.Clusters) {
	case 0:
		return "clusterset " + clusterset
	case 1:
		return "cluster " + g.Clusters[0]
	}
	return fmt.Sprintf("%d clusters: %s", len(g.Clusters), humanize.FirstN(g.Clusters, maxNames))
}
