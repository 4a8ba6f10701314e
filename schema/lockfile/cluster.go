package lockfile

import (
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
)

// and gives what c and another one hold both, or, unless shared, what c holds alone.
func (c *Cluster) and(o *Cluster, shared bool) *Cluster {
	keep := func(list, other []PrefixAllocation) []PrefixAllocation {
		return slices.DeleteFunc(slices.Clone(list), func(h PrefixAllocation) bool { return HasPrefix(other, h.Prefix) != shared })
	}
	out := &Cluster{Blocks: keep(c.Blocks, o.Blocks), Extensions: keep(c.Extensions, o.Extensions),
		Former: keep(c.Former, o.Former), Mappings: maps.Clone(c.Mappings)}
	maps.DeleteFunc(out.Mappings, func(pods netip.Prefix, m PrefixAllocation) bool {
		return (o.Mappings[pods].Prefix == m.Prefix) != shared
	})
	return out
}

// Holds reports whether a prefix lies in a block or an annex of the cluster.
func (c *Cluster) Holds(p netip.Prefix) bool {
	in := func(h PrefixAllocation) bool { return cidr.Contains(h.Prefix, p) }
	return slices.ContainsFunc(c.Blocks, in) || slices.ContainsFunc(c.Extensions, in)
}

// SortAnnexes brings the annexes into the order in which they are written.
func (c *Cluster) SortAnnexes() {
	slices.SortFunc(c.Extensions, func(x, y PrefixAllocation) int { return x.Prefix.Compare(y.Prefix) })
}

// Mapped reports whether a pod prefix has a mapping.
func (c *Cluster) Mapped(pods netip.Prefix) bool {
	_, ok := c.Mappings[pods]
	return ok
}

// DynamicRanges gives the parts of a cluster's blocks that are kept for exports made
// in it, IPv4 first; none without spec.dynamicExports.
func (l *Lock) DynamicRanges(top *schema.ClusterSet, cluster string) []netip.Prefix {
	c := l.Clusters[cluster]
	if c == nil || top.Spec.DynamicExports == nil {
		return nil
	}
	var out []netip.Prefix
	for _, b := range c.Blocks {
		if p := c.Dynamic(b.Prefix); p.IsValid() && slices.ContainsFunc(top.GlobalPools(), p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}

// Dynamic is the second quarter of a block. Pods are mapped to its upper half; in a
// block that grew, a mapping of before may stand in the second quarter, and then
// the first one serves. It is invalid where there is no room.
func (c *Cluster) Dynamic(block netip.Prefix) netip.Prefix {
	if cidr.HostBits(block) < schema.MinDynamicBits {
		return netip.Prefix{}
	}
	for _, nth := range []uint64{1, 0} {
		p := cidr.Subnet(block, 2, nth)
		free := true
		for _, m := range c.Mappings {
			free = free && !m.Prefix.Overlaps(p)
		}
		if free {
			return p
		}
	}
	return netip.Prefix{}
}
