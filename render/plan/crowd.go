package plan

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// crowd is clusters that reach the same, before and after, unless a list names them.
type crowd struct {
	members []string // sorted
	was, is bool     // the clusters exist before, after
	changed bool     // something may differ between before and after for all that they reach
	index   int
}

// crowds are all clusters of both sides.
type crowds struct {
	list []*crowd
	of   map[string]*crowd
}

// crowdsOf parts the clusters by all that schema/fabric/reach asks of them besides
// their names.
func crowdsOf(want, have *reach.Model) *crowds {
	out := &crowds{of: map[string]*crowd{}}
	w, h := traits(want, have), traits(have, want)
	bySign := map[string]*crowd{}
	for _, name := range clusterNames(want.Fabric(), have.Fabric()) {
		sign := h[name] + " | " + w[name]
		c := bySign[sign]
		if c == nil {
			c = &crowd{index: len(out.list), was: h[name] != "", is: w[name] != "", changed: h[name] != w[name]}
			bySign[sign] = c
			out.list = append(out.list, c)
		}
		c.members = append(c.members, name)
		out.of[name] = c
	}
	return out
}

// clusterNames gives the names of all clusters of both sides, sorted.
func clusterNames(a, b *fabric.Fabric) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.ClusterNames(), b.ClusterNames()))))
}

// traits gives, for each cluster, what decides what it reaches. A group of clusters
// that have a way to each other is called by the first that is on both sides, so that
// clusters that come and go change it for nobody else.
func traits(of, other *reach.Model) map[string]string {
	f := of.Fabric()
	groups := map[string]string{}
	for _, group := range f.Graph().Groups() {
		name := group[0]
		if i := slices.IndexFunc(group, func(member string) bool { return other.Cluster(member) != nil }); i >= 0 {
			name = group[i]
		}
		for _, member := range group {
			groups[member] = name
		}
	}
	alone := of.Overlapping()
	out := make(map[string]string, len(f.Clusters))
	for i := range f.Clusters {
		c := &f.Clusters[i]
		text := fmt.Sprintf("%s %t %t %t %t %t %s", groups[c.Name], len(c.Gateways) > 0, c.Has(4), c.Has(6),
			c.Hides(4), c.Hides(6), c.EgressMode)
		if alone[c.Name] {
			text += " " + c.Name
		}
		out[c.Name] = text
	}
	return out
}

// rep gives a member that stands for all but some; empty when there is none.
func (c *crowd) rep(but map[string]bool, destination string) string {
	for _, m := range c.members {
		if m != destination && !but[m] {
			return m
		}
	}
	return ""
}

// exists reports whether the clusters are on a side.
func (c *crowd) exists(want bool) bool { return want && c.is || !want && c.was }

// who is a set of clusters that reach something.
type who struct {
	all    bool     // every cluster but those of out, and the one that has what is reached
	crowds []int    // every cluster of them but those of out
	names  []string // sorted
	out    []string // sorted
}

func (w *who) key() string {
	return fmt.Sprint(w.all, w.crowds, w.names, w.out)
}

// told gives the names of a set that is not of all clusters.
func (x *crowds) told(w *who) []string {
	out := slices.Clone(w.names)
	for _, i := range w.crowds {
		for _, m := range x.list[i].members {
			if _, left := slices.BinarySearch(w.out, m); !left {
				out = append(out, m)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
