package lockfile

import (
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
)

// GC returns the lock without the allocations that the topology no longer requests. Other objects
// can then have these addresses. GC moves them to Released, so that lockmerge also frees them in
// the published lock; see PruneReleased.
func (l *Lock) GC(top *schema.ClusterSet) *Lock {
	out := New()
	for _, d := range Requests(top) {
		h, ok := l.Addrs[d.Claim]
		if !ok {
			continue
		}
		out.Addrs[d.Claim] = Allocation{Addrs: KeepFirst(h.Addrs, d.Count), Pos: h.Pos}
		if ordinal, ok := l.Ordinals[d.Claim]; ok {
			out.Ordinals[d.Claim] = ordinal
		}
	}
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		current := l.Clusters[c.Name]
		if current == nil {
			continue
		}
		entry := out.Cluster(c.Name)
		entry.Blocks = slices.Clone(current.Blocks)
		for _, p := range top.MappablePodCIDRs(c) {
			m, ok := current.Mappings[p]
			if !ok {
				continue
			}
			entry.Mappings[p] = m
			i := slices.IndexFunc(current.ExtensionBlocks, func(h PrefixAllocation) bool { return h.Prefix == m.Prefix })
			if i >= 0 && !entry.Contains(m.Prefix) {
				entry.ExtensionBlocks = append(entry.ExtensionBlocks, current.ExtensionBlocks[i])
			}
		}
		entry.SortExtensionBlocks()
	}
	out.Released = l.difference(out)
	out.Released.addMissing(l.Released)
	return out
}

// PruneReleased returns l without obsolete entries in Released. An entry is obsolete if published
// no longer contains it, or l allocates it again. A nil published means that nothing is published.
func (l *Lock) PruneReleased(published *Lock) *Lock {
	out := l.Clone()
	if l.Released == nil {
		return out
	}
	out.Released = New()
	if published == nil {
		published = New()
	}
	publishedOnly := published.difference(l)
	for s, h := range l.Released.Addrs {
		addrs := slices.DeleteFunc(slices.Clone(h.Addrs), func(a netip.Addr) bool {
			i := slices.Index(published.Addrs[s].Addrs, a)
			return i < 0 || i == slices.Index(l.Addrs[s].Addrs, a)
		})
		if len(addrs) > 0 {
			out.Released.Addrs[s] = Allocation{Addrs: addrs, Pos: h.Pos}
		}
	}
	for s, h := range l.Released.Ordinals {
		if other, ok := publishedOnly.Ordinals[s]; ok && other.Ordinal == h.Ordinal {
			out.Released.Ordinals[s] = h
		}
	}
	for name, c := range l.Released.Clusters {
		if from := publishedOnly.Clusters[name]; from != nil {
			out.Released.addCluster(name, c.compareWith(from, true))
		}
	}
	return out
}

// MissingFrom returns the paths of the allocations that other has and l lacks, in order.
func (l *Lock) MissingFrom(other *Lock) []string {
	missing := other.difference(l)
	var out []string
	clusters, exports := missing.groupClaims()
	for _, n := range slices.Concat(clusters, exports) {
		if missing.Clusters[n.name] != nil && len(n.claims) == 0 {
			out = append(out, fieldpath.Key("clusters", n.name))
		}
		for _, s := range n.claims {
			out = append(out, s.Path())
		}
	}
	return out
}

// Resized returns the clusters of a topology whose prefixes changed before their first publication.
// Such a cluster has an entry in l and none in published. allocated is the lock that follows l. The
// prefixes changed if allocated has another block or mapping, or if the topology does not request a
// mapping of l.
func (l *Lock) Resized(top *schema.ClusterSet, allocated, published *Lock) []string {
	var out []string
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		current, next := l.Clusters[c.Name], allocated.Clusters[c.Name]
		isPublished := published.Clusters[c.Name] != nil
		if current == nil || len(current.Blocks) == 0 || next == nil || isPublished {
			continue
		}
		changed := next.compareWith(current, false)
		unused := false
		for p := range current.Mappings {
			unused = unused || !slices.Contains(top.MappablePodCIDRs(c), p)
		}
		if unused || len(changed.Blocks)+len(changed.ExtensionBlocks)+len(changed.Former)+len(changed.Mappings) > 0 {
			out = append(out, c.Name)
		}
	}
	return out
}

// WithoutClusters returns a copy of the lock without the allocations of clusters. It retains
// clusterset IPs and tunnel addresses.
func (l *Lock) WithoutClusters(clusters []string) *Lock {
	out := l.Clone()
	for _, name := range clusters {
		delete(out.Clusters, name)
	}
	maps.DeleteFunc(out.Addrs, func(s Claim, _ Allocation) bool {
		return s.Kind != ClaimGateway && slices.Contains(clusters, s.Cluster)
	})
	return out
}

// addCluster adds a cluster's entry unless it is empty.
func (l *Lock) addCluster(name string, c *Cluster) {
	if len(c.Blocks)+len(c.ExtensionBlocks)+len(c.Former)+len(c.Mappings) > 0 {
		l.Clusters[name] = c
	}
}

// difference returns the allocations that l has and o lacks.
func (l *Lock) difference(o *Lock) *Lock {
	out := New()
	for s, h := range l.Addrs {
		addrs := slices.DeleteFunc(slices.Clone(h.Addrs), func(a netip.Addr) bool { return slices.Contains(o.Addrs[s].Addrs, a) })
		if len(addrs) > 0 {
			out.Addrs[s] = Allocation{Addrs: addrs, Pos: h.Pos}
		}
	}
	for s, h := range l.Ordinals {
		if other, ok := o.Ordinals[s]; !ok || other.Ordinal != h.Ordinal {
			out.Ordinals[s] = h
		}
	}
	for name, c := range l.Clusters {
		from := o.Clusters[name]
		if from == nil {
			from = &Cluster{}
		}
		out.addCluster(name, c.compareWith(from, false))
	}
	return out
}

// addMissing adds the allocations that o has and l lacks.
func (l *Lock) addMissing(o *Lock) {
	if o == nil {
		return
	}
	missing := o.difference(l)
	for s, h := range missing.Addrs {
		l.Addrs[s] = Allocation{Addrs: slices.Concat(l.Addrs[s].Addrs, h.Addrs), Pos: h.Pos}
	}
	maps.Copy(l.Ordinals, missing.Ordinals)
	for name, c := range missing.Clusters {
		entry := l.Cluster(name)
		entry.Blocks = append(entry.Blocks, c.Blocks...)
		entry.ExtensionBlocks = append(entry.ExtensionBlocks, c.ExtensionBlocks...)
		entry.Former = append(entry.Former, c.Former...)
		maps.Copy(entry.Mappings, c.Mappings)
	}
}

// KeepFirst returns the first n addresses of each family, in their order.
func KeepFirst(addrs []netip.Addr, n int) []netip.Addr {
	var out []netip.Addr
	var four, six int
	for _, a := range addrs {
		count := &six
		if a.Is4() {
			count = &four
		}
		if *count < n {
			*count++
			out = append(out, a)
		}
	}
	return out
}

// WithReleased returns a copy of the lock with more added to Released.
func (l *Lock) WithReleased(more *Lock) *Lock {
	out := l.Clone()
	out.Released = New()
	out.Released.addMissing(l.Released)
	out.Released.addMissing(more)
	return out
}
