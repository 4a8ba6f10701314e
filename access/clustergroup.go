package access

import (
	"fmt"
	"slices"
)

// clusterGroup is a set of clusters with identical access in both fabrics, apart from lists that
// name a cluster.
type clusterGroup struct {
	index         int
	members       []string // sorted
	before, after bool     // whether the clusters exist
	changed       bool     // access of the clusters may differ between the fabrics
}

// clusterGroups are all clusters of two fabrics.
type clusterGroups struct {
	list   []*clusterGroup
	byName map[string]*clusterGroup
}

// newClusterGroups groups clusters by all properties that the model depends on, except their names.
func newClusterGroups(before, after *Set) *clusterGroups {
	out := &clusterGroups{byName: map[string]*clusterGroup{}}
	oldSignatures, newSignatures := groupSignatures(before, after), groupSignatures(after, before)
	bySignature := map[string]*clusterGroup{}
	for _, name := range clusterNames(before, after) {
		signature := oldSignatures[name] + " | " + newSignatures[name]
		g := bySignature[signature]
		if g == nil {
			g = &clusterGroup{index: len(out.list), before: oldSignatures[name] != "", after: newSignatures[name] != "", changed: oldSignatures[name] != newSignatures[name]}
			bySignature[signature] = g
			out.list = append(out.list, g)
		}
		g.members = append(g.members, name)
		out.byName[name] = g
	}
	return out
}

// clusterNames returns the names of all clusters of two fabrics, sorted.
func clusterNames(a, b *Set) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.model.Fabric().ClusterNames(), b.model.Fabric().ClusterNames()))))
}

// groupSignatures returns a text for each cluster of a fabric with all properties that decide its
// access. A connected component has the name of its first member that the other fabric also has.
// Clusters that join or leave thus do not change the signatures of others.
func groupSignatures(s, other *Set) map[string]string {
	components := map[string]string{}
	for _, members := range s.graph.Components() {
		name := members[0]
		if i := slices.IndexFunc(members, func(member string) bool { return other.model.Cluster(member) != nil }); i >= 0 {
			name = members[i]
		}
		for _, member := range members {
			components[member] = name
		}
	}
	unique := s.model.Overlapping()
	clusters := s.model.Fabric().Clusters
	out := make(map[string]string, len(clusters))
	for i := range clusters {
		c := &clusters[i]
		text := fmt.Sprintf("%s %t %t %t %t %t %s", components[c.Name], len(c.Gateways) > 0, c.Has(4), c.Has(6),
			c.IsGlobalnet(4), c.IsGlobalnet(6), c.EgressMode)
		if unique[c.Name] {
			text += " " + c.Name
		}
		out[c.Name] = text
	}
	return out
}

// representative returns a member that is neither the cluster nor named, or "".
func (g *clusterGroup) representative(named map[string]bool, cluster string) string {
	for _, m := range g.members {
		if m != cluster && !named[m] {
			return m
		}
	}
	return ""
}

// exists reports whether the clusters are in the new fabric, or in the old fabric if after is
// false.
func (g *clusterGroup) exists(after bool) bool { return after && g.after || !after && g.before }

// subjects is a set of clusters.
type subjects struct {
	all    bool     // every cluster except those in except, and the cluster with the resource
	groups []int    // every member except those in except
	names  []string // sorted
	except []string // sorted
}

func (s *subjects) key() string { return fmt.Sprint(s.all, s.groups, s.names, s.except) }

// expand returns the names of a set whose all is false.
func (x *clusterGroups) expand(s *subjects) []string {
	out := slices.Clone(s.names)
	for _, i := range s.groups {
		for _, m := range x.list[i].members {
			if _, excluded := slices.BinarySearch(s.except, m); !excluded {
				out = append(out, m)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
