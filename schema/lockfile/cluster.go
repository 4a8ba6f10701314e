package lockfile

import (
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/schema"
)

// compareWith returns the allocations that both c and o have if shared is true. Otherwise it
// returns the allocations that only c has.
func (c *Cluster) compareWith(o *Cluster, shared bool) *Cluster {
	filter := func(list, other []PrefixAllocation) []PrefixAllocation {
		return slices.DeleteFunc(slices.Clone(list), func(h PrefixAllocation) bool { return HasPrefix(other, h.Prefix) != shared })
	}
	out := &Cluster{Blocks: filter(c.Blocks, o.Blocks), ExtensionBlocks: filter(c.ExtensionBlocks, o.ExtensionBlocks),
		Former: filter(c.Former, o.Former), Mappings: maps.Clone(c.Mappings)}
	maps.DeleteFunc(out.Mappings, func(pods netip.Prefix, m PrefixAllocation) bool {
		return (o.Mappings[pods].Prefix == m.Prefix) != shared
	})
	return out
}

// Contains reports whether a prefix is within a block or an extension block of the cluster.
func (c *Cluster) Contains(p netip.Prefix) bool {
	in := func(h PrefixAllocation) bool { return cidr.Contains(h.Prefix, p) }
	return slices.ContainsFunc(c.Blocks, in) || slices.ContainsFunc(c.ExtensionBlocks, in)
}

// SortExtensionBlocks sorts the extension blocks in the order of the lock file.
func (c *Cluster) SortExtensionBlocks() {
	slices.SortFunc(c.ExtensionBlocks, func(x, y PrefixAllocation) int { return x.Prefix.Compare(y.Prefix) })
}

// Mapped reports whether a pod prefix has a mapping.
func (c *Cluster) Mapped(pods netip.Prefix) bool {
	_, ok := c.Mappings[pods]
	return ok
}

// DynamicRanges returns the ranges of a cluster's blocks that are reserved for its dynamic exports,
// IPv4 first. It returns nil without spec.dynamicExports.
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

// Dynamic returns the range of a block for dynamic exports. It is the second quarter, because pods
// are mapped to the upper half. In a block that grew, an older mapping can use the second quarter:
// then the range is the first one. The result is invalid if mappings use both.
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
