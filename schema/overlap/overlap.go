// Package overlap finds overlapping prefixes of clusters in one sweep, and the clusters that
// therefore need global addresses.
package overlap

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
)

// MappedClusters returns the clusters whose addresses are mapped to global ones in either
// family.
func MappedClusters(s *schema.ClusterSet) map[string]bool {
	mapped := make(map[string]bool, len(s.Spec.Clusters))
	for name, h := range MappedFamilies(s) {
		mapped[name] = h.IPv4 || h.IPv6
	}
	return mapped
}

// Families is a set of address families.
type Families struct{ IPv4, IPv6 bool }

// MappedFamilies returns, per cluster, the families whose addresses are mapped to global
// ones. always maps both and never maps none. auto maps the families in which a prefix of
// the cluster overlaps a prefix of another cluster.
func MappedFamilies(s *schema.ClusterSet) map[string]Families {
	mapped := make(map[string]Families, len(s.Spec.Clusters))
	for _, c := range s.Spec.Clusters {
		always := c.Globalnet == schema.GlobalnetAlways
		mapped[c.Name] = Families{IPv4: always, IPv6: always}
	}
	groups := GroupsOf(s)
	for i := range groups {
		var overlapping firstMembers
		for a := &groups[i]; a != nil; a = ParentOf(groups, a) {
			overlapping.join(a.members)
		}
		overlapping.join(groups[i].innerMembers)
		for _, m := range groups[i].Members {
			if overlapping.hasOther(m.Cluster) && !m.never {
				name := s.Spec.Clusters[m.Cluster].Name
				mapped[name] = mapped[name].With(m.Prefix.Addr().Is6())
			}
		}
	}
	return mapped
}

// With returns h with one more family.
func (h Families) With(six bool) Families {
	if six {
		h.IPv6 = true
	} else {
		h.IPv4 = true
	}
	return h
}

// Member is one use of a prefix by a cluster.
type Member struct {
	Cluster int // index in Spec.Clusters
	Path    string
	Prefix  netip.Prefix // without host bits
	Order   int          // in the file
	never   bool         // the cluster has globalnet: never
}

// Group is all uses of one prefix. Its ancestors are the groups whose prefixes
// contain it. Two prefixes overlap only if one contains the other.
type Group struct {
	Prefix       netip.Prefix
	Members      []Member
	parent       int          // index of the smallest group that contains it, or -1
	members      firstMembers // among the members
	innerMembers firstMembers // among the members of inner groups
}

// firstMembers has the first members in file order, one per cluster, separately for clusters
// with globalnet: never and for all others. Each list has one more than MaxOthers, so any
// member finds MaxOthers members of other clusters without a scan of all.
type firstMembers struct{ never, others []Member }

func (s *firstMembers) add(m Member) {
	list := &s.others
	if m.never {
		list = &s.never
	}
	if i := slices.IndexFunc(*list, func(o Member) bool { return o.Cluster == m.Cluster }); i >= 0 {
		if (*list)[i].Order <= m.Order {
			return
		}
		*list = slices.Delete(*list, i, i+1)
	}
	byOrder := func(a, b Member) int { return a.Order - b.Order }
	position, _ := slices.BinarySearchFunc(*list, m, byOrder)
	if position > MaxOthers {
		return
	}
	*list = slices.Insert(*list, position, m)
	*list = (*list)[:min(len(*list), MaxOthers+1)]
}

func (s *firstMembers) join(o firstMembers) {
	for _, m := range o.never {
		s.add(m)
	}
	for _, m := range o.others {
		s.add(m)
	}
}

// hasOther reports whether s has a member of another cluster.
func (s *firstMembers) hasOther(cluster int) bool {
	other := func(m Member) bool { return m.Cluster != cluster }
	return slices.ContainsFunc(s.never, other) || slices.ContainsFunc(s.others, other)
}

// ParentOf returns the smallest group that contains g; nil if absent.
func ParentOf(groups []Group, g *Group) *Group {
	if g.parent < 0 {
		return nil
	}
	return &groups[g.parent]
}

// GroupsOf returns the groups of all prefixes of the clusters. The members of each cluster
// are in file order.
func GroupsOf(s *schema.ClusterSet) []Group {
	var members []Member
	for i, path := range s.ClusterPaths() {
		c := &s.Spec.Clusters[i]
		never := c.Globalnet == schema.GlobalnetNever
		members = appendMembers(members, i, never, path+".podCIDRs", c.PodCIDRs)
		members = appendMembers(members, i, never, path+".serviceCIDRs", c.ServiceCIDRs)
	}
	return GroupMembers(members)
}

func appendMembers(members []Member, cluster int, never bool, path string, prefixes []netip.Prefix) []Member {
	for i, p := range prefixes {
		if p.IsValid() {
			members = append(members, Member{Cluster: cluster, Path: fieldpath.Index(path, i), Prefix: p.Masked(), Order: len(members), never: never})
		}
	}
	return members
}

// GroupMembers returns members in groups, sorted by prefix.
func GroupMembers(members []Member) []Group {
	slices.SortStableFunc(members, func(a, b Member) int { return a.Prefix.Compare(b.Prefix) })
	var groups []Group
	for _, m := range members {
		if last := len(groups) - 1; last >= 0 && groups[last].Prefix == m.Prefix {
			groups[last].Members = append(groups[last].Members, m)
			continue
		}
		parent := len(groups) - 1
		for parent >= 0 && !cidr.Contains(groups[parent].Prefix, m.Prefix) {
			parent = groups[parent].parent
		}
		groups = append(groups, Group{Prefix: m.Prefix, Members: []Member{m}, parent: parent})
	}
	for i := range slices.Backward(groups) { // inner groups follow their outer groups
		g := &groups[i]
		for _, m := range g.Members {
			g.members.add(m)
		}
		if outer := ParentOf(groups, g); outer != nil {
			outer.innerMembers.join(g.members)
			outer.innerMembers.join(g.innerMembers)
		}
	}
	return groups
}

// Find returns the smallest group that contains an address; nil if absent.
func Find(groups []Group, a netip.Addr) *Group {
	i, _ := slices.BinarySearchFunc(groups, a, func(g Group, a netip.Addr) int {
		if g.Prefix.Addr().Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	for i--; i >= 0; i = groups[i].parent {
		if groups[i].Prefix.Contains(a) {
			return &groups[i]
		}
	}
	return nil
}
