package schema

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
)

// An annex is a part of the global pool beside a cluster's block: a pod prefix
// that came later, and found no room in the block, is mapped to it, so that the
// cluster stays mapped and nothing that it has moves. Each is as large as its prefix.

// keepAnnexes leaves the annexes where they are, those of members first.
func (b *blockPass) keepAnnexes() {
	for _, live := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(b.lock.clusters)) {
			if c := b.lock.clusters[name]; (b.members[name] != nil) == live {
				c.annexes = slices.DeleteFunc(c.annexes, func(h heldPrefix) bool { return b.same(h.prefix) && !b.keepsAnnex(name, h, live) })
			}
		}
	}
}

func (b *blockPass) keepsAnnex(name string, h heldPrefix, live bool) bool {
	t, clash := b.overlap(h.prefix)
	if !clash && contains(b.pool, h.prefix) {
		b.own(name, h, live)
		return true
	}
	if clash && live && b.owner[t].cluster != name {
		b.list = append(b.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict",
			Path: at("clusters", name) + ".annexes", Pos: h.pos,
			Related: []diag.Related{{Path: at("clusters", b.owner[t].cluster) + ".blocks", Pos: b.owner[t].pos}},
			Summary: fmt.Sprintf("has %s beside its block, which overlaps %s of clusters[%s]; it gets another", h.prefix, t, b.owner[t].cluster),
			Hint:    "both were allocated on different branches; the pods that are mapped there change their global addresses"})
	}
	return false
}

// annex maps pod prefixes of a cluster that is mapped already, where its block has
// no room, beside it; nil when the pool has none either.
func (a *allocator) annex(name string, entry *lockedCluster, missing []netip.Prefix, halves map[bool]*space) (found []netip.Prefix) {
	var annexes []heldPrefix
	for _, p := range missing {
		if m := place([]netip.Prefix{p}, halves); m != nil {
			found = append(found, m[0])
			continue
		}
		pool := a.spaces[p.Addr().Is4()]
		m, ok := pool.choose(hostBits(p), name+" "+p.String())
		if !ok {
			return nil
		}
		pool.take(m)
		annexes = append(annexes, heldPrefix{prefix: m})
		found = append(found, m)
	}
	entry.annexes = append(entry.annexes, annexes...)
	return found
}

// reportAnnexes tells which pods are mapped outside of the cluster's block.
func (a *allocator) reportAnnexes(c *Cluster, missing, found []netip.Prefix) {
	for i, p := range missing {
		if !slices.ContainsFunc(a.lock.clusters[c.Name].annexes, func(h heldPrefix) bool { return h.prefix == found[i] }) {
			continue
		}
		hint := "whoever filters by global addresses must know it, too; nothing moves"
		if live := mappable(a.top, c); len(a.lock.clusters[c.Name].mappings) > len(live) {
			hint += "; hawser allocate --gc before the lock is committed frees the part of prefixes that the cluster no longer has"
		}
		a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "annex", Path: at("clusters", c.Name) + ".podCIDRs",
			Summary: fmt.Sprintf("the block %s is full, so %s is mapped to %s beside it", list(a.lock.Blocks(c.Name)), p, found[i]),
			Hint:    hint})
	}
}

// adoptAnnex takes over the annex that a mapping needs.
func (c *lockedCluster) adoptAnnex(m heldPrefix, from *lockedCluster) {
	i := slices.IndexFunc(from.annexes, func(h heldPrefix) bool { return h.prefix == m.prefix })
	if i >= 0 && !c.holds(m.prefix) {
		c.annexes = append(c.annexes, from.annexes[i])
	}
}

// holds reports whether a prefix lies in a block or an annex of the cluster.
func (c *lockedCluster) holds(p netip.Prefix) bool {
	in := func(h heldPrefix) bool { return contains(h.prefix, p) }
	return slices.ContainsFunc(c.blocks, in) || slices.ContainsFunc(c.annexes, in)
}

// sortAnnexes brings the annexes into the order in which they are written.
func (c *lockedCluster) sortAnnexes() {
	slices.SortFunc(c.annexes, func(x, y heldPrefix) int { return x.prefix.Compare(y.prefix) })
}
