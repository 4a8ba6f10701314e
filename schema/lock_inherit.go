package schema

import (
	"maps"
	"net/netip"
	"slices"
)

// Inherit gives the lock with what from has besides: the slots, blocks and
// mappings that l lacks. Where the two contradict each other l stays as it is,
// and what of from does not fit into it is left out. Neither lock is changed.
//
// It is for addresses that are in force but were never committed: the lock
// that is published carries them from one commit to the next.
func (l *Lock) Inherit(from *Lock) *Lock {
	out := l.clone()
	taken := map[netip.Addr]bool{}
	for _, h := range l.addrs {
		for _, a := range h.addrs {
			taken[a] = true
		}
	}
	out.inheritLanes(from)
	own := prefixesOf(l)
	stray := map[string]bool{} // clusters whose blocks in from are not theirs in l
	for _, name := range slices.Sorted(maps.Keys(from.clusters)) {
		stray[name] = !out.inheritCluster(name, from.clusters[name], own, taken)
	}
	for _, s := range from.sorted() {
		if _, has := out.addrs[s]; has || s.area() == s.cluster && stray[s.cluster] {
			continue
		}
		h := from.addrs[s]
		if !slices.ContainsFunc(h.addrs, func(a netip.Addr) bool { return taken[a] }) {
			out.addrs[s] = h
		}
	}
	return out
}

// inheritCluster takes over a cluster's blocks and mappings; false when its
// addresses in from mean nothing here.
func (l *Lock) inheritCluster(name string, from *lockedCluster, own []netip.Prefix, taken map[netip.Addr]bool) bool {
	have := l.clusters[name]
	if have == nil {
		for _, b := range slices.Concat(from.blocks, from.annexes, from.former) {
			if slices.ContainsFunc(own, b.prefix.Overlaps) {
				return false
			}
		}
		l.clusters[name] = &lockedCluster{
			blocks: slices.Clone(from.blocks), annexes: slices.Clone(from.annexes), former: slices.Clone(from.former),
			mappings: maps.Clone(from.mappings),
		}
		return true
	}
	if !slices.EqualFunc(have.blocks, from.blocks, func(a, b heldPrefix) bool { return a.prefix == b.prefix }) {
		return false
	}
	for pods, m := range from.mappings {
		if _, has := have.mappings[pods]; !has && free(m.prefix, have.mappings, taken) && have.inheritAnnex(m, from, own) {
			have.mappings[pods] = m
		}
	}
	have.sortAnnexes()
	return true
}

// free reports whether neither a mapping nor an address lies in a prefix.
func free(p netip.Prefix, mappings map[netip.Prefix]heldPrefix, taken map[netip.Addr]bool) bool {
	for _, m := range mappings {
		if m.prefix.Overlaps(p) {
			return false
		}
	}
	for a := range taken {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// prefixesOf gives every block of a lock, former ones too.
func prefixesOf(l *Lock) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range l.clusters {
		for _, b := range slices.Concat(c.blocks, c.annexes, c.former) {
			out = append(out, b.prefix)
		}
	}
	return out
}
