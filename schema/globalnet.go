package schema

import (
	"net/netip"
	"slices"
)

// Globalnet says which clusters hide addresses behind global ones, of whatever family.
func (s *ClusterSet) Globalnet() map[string]bool {
	on := make(map[string]bool, len(s.Spec.Clusters))
	for name, h := range s.Hidden() {
		on[name] = h.IPv4 || h.IPv6
	}
	return on
}

// Hidden says which of a cluster's addresses are hidden behind global ones.
type Hidden struct{ IPv4, IPv6 bool }

// Hidden says it of each cluster: always and never as the file has it, auto in
// the families in which a prefix of the cluster overlaps one of another cluster.
func (s *ClusterSet) Hidden() map[string]Hidden {
	on := make(map[string]Hidden, len(s.Spec.Clusters))
	for _, c := range s.Spec.Clusters {
		always := c.Globalnet == GlobalnetAlways
		on[c.Name] = Hidden{IPv4: always, IPv6: always}
	}
	groups := newGroups(s)
	for i := range groups {
		var with some
		for a := &groups[i]; a != nil; a = parentOf(groups, a) {
			with.join(a.here)
		}
		with.join(groups[i].below)
		for _, m := range groups[i].members {
			if with.hasOther(m.cluster) && !m.never {
				name := s.Spec.Clusters[m.cluster].Name
				on[name] = on[name].with(m.prefix.Addr().Is6())
			}
		}
	}
	return on
}

func (h Hidden) with(six bool) Hidden {
	if six {
		h.IPv6 = true
	} else {
		h.IPv4 = true
	}
	return h
}

// member is one use of a prefix by a cluster.
type member struct {
	cluster int // index in Spec.Clusters
	path    string
	prefix  netip.Prefix // without host bits
	order   int          // in the file
	never   bool         // the cluster says globalnet: never
}

// group is all uses of one prefix. Its ancestors are the groups whose prefixes
// contain it; prefixes overlap only when one contains the other.
type group struct {
	prefix  netip.Prefix
	members []member
	parent  int  // index of the smallest group that contains it, or -1
	here    some // of the members
	below   some // of those of the groups inside
}

// some holds the first members by their order in the file, one a cluster: of those
// whose cluster says never, and of the others. With them each member finds maxOthers
// of other clusters, if there are so many, without a look at all.
type some struct{ never, others []member }

func (s *some) add(m member) {
	list := &s.others
	if m.never {
		list = &s.never
	}
	if i := slices.IndexFunc(*list, func(o member) bool { return o.cluster == m.cluster }); i >= 0 {
		if (*list)[i].order <= m.order {
			return
		}
		*list = slices.Delete(*list, i, i+1)
	}
	at, _ := slices.BinarySearchFunc(*list, m, func(a, b member) int { return a.order - b.order })
	if at > maxOthers {
		return
	}
	*list = slices.Insert(*list, at, m)
	*list = (*list)[:min(len(*list), maxOthers+1)]
}

func (s *some) join(o some) {
	for _, m := range o.never {
		s.add(m)
	}
	for _, m := range o.others {
		s.add(m)
	}
}

// hasOther reports whether a cluster other than the given one is among them.
func (s *some) hasOther(cluster int) bool {
	other := func(m member) bool { return m.cluster != cluster }
	return slices.ContainsFunc(s.never, other) || slices.ContainsFunc(s.others, other)
}

func parentOf(groups []group, g *group) *group {
	if g.parent < 0 {
		return nil
	}
	return &groups[g.parent]
}

// newGroups sorts the clusters' prefixes and sweeps them once. Each cluster's
// members come in the order of the file.
func newGroups(s *ClusterSet) []group {
	var members []member
	for i, path := range s.clusterPaths() {
		c := &s.Spec.Clusters[i]
		never := c.Globalnet == GlobalnetNever
		members = appendMembers(members, i, never, path+".podCIDRs", c.PodCIDRs)
		members = appendMembers(members, i, never, path+".serviceCIDRs", c.ServiceCIDRs)
	}
	return groupMembers(members)
}

func appendMembers(members []member, cluster int, never bool, path string, prefixes []netip.Prefix) []member {
	for i, p := range prefixes {
		if p.IsValid() {
			members = append(members, member{cluster: cluster, path: nth(path, i), prefix: p.Masked(), order: len(members), never: never})
		}
	}
	return members
}

func groupMembers(members []member) []group {
	slices.SortStableFunc(members, func(a, b member) int { return a.prefix.Compare(b.prefix) })
	var groups []group
	for _, m := range members {
		if last := len(groups) - 1; last >= 0 && groups[last].prefix == m.prefix {
			groups[last].members = append(groups[last].members, m)
			continue
		}
		parent := len(groups) - 1
		for parent >= 0 && !contains(groups[parent].prefix, m.prefix) {
			parent = groups[parent].parent
		}
		groups = append(groups, group{prefix: m.prefix, members: []member{m}, parent: parent})
	}
	for i := range slices.Backward(groups) { // what is inside stands behind
		g := &groups[i]
		for _, m := range g.members {
			g.here.add(m)
		}
		if outer := parentOf(groups, g); outer != nil {
			outer.below.join(g.here)
			outer.below.join(g.below)
		}
	}
	return groups
}

// contains reports whether inner lies within outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// find gives the smallest group that holds an address, or nil.
func find(groups []group, a netip.Addr) *group {
	i, _ := slices.BinarySearchFunc(groups, a, func(g group, a netip.Addr) int {
		if g.prefix.Addr().Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	for i--; i >= 0; i = groups[i].parent {
		if groups[i].prefix.Contains(a) {
			return &groups[i]
		}
	}
	return nil
}
