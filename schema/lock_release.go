package schema

import (
	"maps"
	"net/netip"
	"slices"
)

// GC gives the lock without what the topology no longer asks for: those
// addresses may then be given to others. They stand under released, so that what
// holds for a published lock, too (Over); see Forget.
func (l *Lock) GC(top *ClusterSet) *Lock {
	out := newLock()
	for _, d := range demandsOf(top) {
		h, ok := l.addrs[d.slot]
		if !ok {
			continue
		}
		out.addrs[d.slot] = held{addrs: keepFirst(h.addrs, d.count), pos: h.pos}
		if lane, ok := l.lanes[d.slot]; ok {
			out.lanes[d.slot] = lane
		}
	}
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		have := l.clusters[c.Name]
		if have == nil {
			continue
		}
		entry := out.cluster(c.Name)
		entry.blocks = slices.Clone(have.blocks)
		for _, p := range mappable(top, c) {
			if m, ok := have.mappings[p]; ok {
				entry.mappings[p] = m
				entry.adoptAnnex(m, have)
			}
		}
		entry.sortAnnexes()
	}
	out.released = l.without(out)
	out.released.add(l.released)
	return out
}

// Forget gives the lock without the lines under released that have done their
// work: what is published no longer has those things, or l has them in their place
// again. nil stands for nothing published.
func (l *Lock) Forget(published *Lock) *Lock {
	out := l.clone()
	if l.released == nil {
		return out
	}
	out.released = newLock()
	if published == nil {
		published = newLock()
	}
	there := published.without(l)
	for s, h := range l.released.addrs {
		addrs := filter(h.addrs, func(a netip.Addr) bool {
			i := slices.Index(published.addrs[s].addrs, a)
			return i >= 0 && i != slices.Index(l.addrs[s].addrs, a)
		})
		if len(addrs) > 0 {
			out.released.addrs[s] = held{addrs: addrs, pos: h.pos}
		}
	}
	for s, h := range l.released.lanes {
		if lane, is := there.lanes[s]; is && lane.lane == h.lane {
			out.released.lanes[s] = h
		}
	}
	for name, c := range l.released.clusters {
		from := there.clusters[name]
		if from == nil {
			continue
		}
		keep := func(list, in []heldPrefix) []heldPrefix {
			return slices.DeleteFunc(slices.Clone(list), func(h heldPrefix) bool { return !hasPrefix(in, h.prefix) })
		}
		entry := &lockedCluster{blocks: keep(c.blocks, from.blocks), annexes: keep(c.annexes, from.annexes),
			former: keep(c.former, from.former), mappings: maps.Clone(c.mappings)}
		maps.DeleteFunc(entry.mappings, func(pods netip.Prefix, m heldPrefix) bool {
			return from.mappings[pods].prefix != m.prefix
		})
		out.released.put(name, entry)
	}
	return out
}

// Lacks gives the paths of what other holds and l does not, in order.
func (l *Lock) Lacks(other *Lock) []string {
	more := other.without(l)
	var out []string
	clusters, exports := more.tree()
	for _, n := range slices.Concat(clusters, exports) {
		if more.clusters[n.name] != nil && len(n.slots) == 0 {
			out = append(out, at("clusters", n.name))
		}
		for _, s := range n.slots {
			out = append(out, s.path())
		}
	}
	return out
}

// put adds a cluster's entry unless it is empty.
func (l *Lock) put(name string, c *lockedCluster) {
	if len(c.blocks)+len(c.annexes)+len(c.former)+len(c.mappings) > 0 {
		l.clusters[name] = c
	}
}

// without gives what l holds and o does not.
func (l *Lock) without(o *Lock) *Lock {
	out := newLock()
	for s, h := range l.addrs {
		addrs := filter(h.addrs, func(a netip.Addr) bool { return !slices.Contains(o.addrs[s].addrs, a) })
		if len(addrs) > 0 {
			out.addrs[s] = held{addrs: addrs, pos: h.pos}
		}
	}
	for s, h := range l.lanes {
		if lane, is := o.lanes[s]; !is || lane.lane != h.lane {
			out.lanes[s] = h
		}
	}
	for name, c := range l.clusters {
		from := o.clusters[name]
		if from == nil {
			from = &lockedCluster{}
		}
		less := func(list, in []heldPrefix) []heldPrefix {
			return slices.DeleteFunc(slices.Clone(list), func(h heldPrefix) bool { return hasPrefix(in, h.prefix) })
		}
		entry := &lockedCluster{blocks: less(c.blocks, from.blocks), annexes: less(c.annexes, from.annexes),
			former: less(c.former, from.former), mappings: maps.Clone(c.mappings)}
		maps.DeleteFunc(entry.mappings, func(pods netip.Prefix, m heldPrefix) bool {
			return from.mappings[pods].prefix == m.prefix
		})
		out.put(name, entry)
	}
	return out
}

// add takes over what o holds and l does not.
func (l *Lock) add(o *Lock) {
	if o == nil {
		return
	}
	more := o.without(l)
	for s, h := range more.addrs {
		l.addrs[s] = held{addrs: slices.Concat(l.addrs[s].addrs, h.addrs), pos: h.pos}
	}
	maps.Copy(l.lanes, more.lanes)
	for name, c := range more.clusters {
		entry := l.cluster(name)
		entry.blocks = append(entry.blocks, c.blocks...)
		entry.annexes = append(entry.annexes, c.annexes...)
		entry.former = append(entry.former, c.former...)
		maps.Copy(entry.mappings, c.mappings)
	}
}

// unreleased gives the published lock less what the committed one has released. A
// line under released counts for what neither the topology nor the committed lock
// has: a branch that needs the thing again may have been merged since.
func (o *overlay) unreleased(published *Lock) *Lock {
	released := o.committed.released
	if released == nil {
		return published
	}
	out := published.clone()
	for s, h := range released.addrs {
		from := published.addrs[s]
		inForce := keepFirst(from.addrs, o.counts[s])
		addrs := filter(from.addrs, func(a netip.Addr) bool {
			return !slices.Contains(h.addrs, a) || slices.Contains(o.committed.addrs[s].addrs, a) || slices.Contains(inForce, a)
		})
		out.addrs[s] = held{addrs: addrs, pos: from.pos}
		if len(addrs) == 0 {
			delete(out.addrs, s)
		}
	}
	for s := range released.lanes {
		_, live := o.counts[s]
		if _, has := o.committed.lanes[s]; !live && !has {
			delete(out.lanes, s)
		}
	}
	inUse := map[string]bool{}
	for s := range out.addrs {
		inUse[s.area()] = true
	}
	for name, c := range released.clusters {
		if entry := out.clusters[name]; entry != nil {
			o.releaseCluster(name, c, entry, inUse[name])
		}
	}
	return out
}

// releaseCluster takes what was released out of a cluster's published entry. A
// block goes when nothing that was published later is left in it (inUse).
func (o *overlay) releaseCluster(name string, released, entry *lockedCluster, inUse bool) {
	member, mine := o.members[name], o.committed.clusters[name]
	if mine == nil {
		mine = &lockedCluster{}
	}
	var live []netip.Prefix
	if member != nil {
		live = mappable(o.top, member)
	}
	maps.DeleteFunc(entry.mappings, func(pods netip.Prefix, m heldPrefix) bool {
		return released.mappings[pods].prefix == m.prefix && mine.mappings[pods].prefix != m.prefix &&
			!slices.Contains(live, pods)
	})
	gone := func(list, released []heldPrefix, inUse func(netip.Prefix) bool) []heldPrefix {
		return slices.DeleteFunc(list, func(h heldPrefix) bool {
			return hasPrefix(released, h.prefix) && !hasPrefix(mine.prefixes(), h.prefix) && !inUse(h.prefix)
		})
	}
	mapped := func(p netip.Prefix) bool {
		for _, m := range entry.mappings {
			if p.Overlaps(m.prefix) {
				return true
			}
		}
		return false
	}
	entry.blocks = gone(entry.blocks, released.blocks, func(p netip.Prefix) bool {
		return member != nil || inUse || mapped(p)
	})
	entry.former = gone(entry.former, released.former, func(netip.Prefix) bool { return false })
	entry.annexes = gone(entry.annexes, released.annexes, mapped)
}

// keepFirst gives the first n addresses of each family, in their order.
func keepFirst(addrs []netip.Addr, n int) []netip.Addr {
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
