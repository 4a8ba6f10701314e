package allocate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// An extension (key extensionBlocks in the lock) is a part of the global pool outside the
// cluster's block. A pod prefix that was added later and does not fit into the block is
// mapped to an extension of the same size. The cluster stays mapped and no address moves.

// retainExtensions retains the extensions, first of members, then of removed clusters.
func (b *blockAllocator) retainExtensions() {
	for _, isMember := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(b.lock.Clusters)) {
			if c := b.lock.Clusters[name]; (b.clusters[name] != nil) == isMember {
				c.ExtensionBlocks = slices.DeleteFunc(c.ExtensionBlocks, func(h lockfile.PrefixAllocation) bool {
					return b.sameFamily(h.Prefix) && !b.retainExtension(name, h, isMember)
				})
			}
		}
	}
}

func (b *blockAllocator) retainExtension(
	name string, h lockfile.PrefixAllocation, isMember bool,
) bool {
	t, overlaps := b.overlap(h.Prefix)
	if !overlaps && cidr.Contains(b.pool, h.Prefix) {
		b.addOwner(name, h, isMember)
		return true
	}
	if overlaps && isMember && b.owner[t].cluster != name {
		b.list = append(b.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict",
			Path: fieldpath.Key("clusters", name) + ".extensionBlocks", Pos: h.Pos,
			Related: []diag.Related{{Path: fieldpath.Key("clusters", b.owner[t].cluster) + ".blocks", Pos: b.owner[t].Pos}},
			Summary: fmt.Sprintf("has the extension block %s, which overlaps %s of clusters[%s]; it gets another", h.Prefix, t, b.owner[t].cluster),
			Hint:    "both were allocated on different branches; the pods that are mapped there change their global addresses"})
	}
	return false
}

// extendBlock maps more pod prefixes of a mapped cluster: to its block if they fit,
// otherwise to new extensions. It returns nil if the pool is full too.
func (a *allocator) extendBlock(name string, entry *lockfile.Cluster, missing []netip.Prefix, halves map[bool]*prefixPool) (found []netip.Prefix) {
	var added []lockfile.PrefixAllocation
	for _, p := range missing {
		if m := allocateSameSize([]netip.Prefix{p}, halves); m != nil {
			found = append(found, m[0])
			continue
		}
		pool := a.prefixPools[p.Addr().Is4()]
		m, ok := pool.choose(cidr.HostBits(p), name+" "+p.String())
		if !ok {
			return nil
		}
		pool.markUsed(m)
		added = append(added, lockfile.PrefixAllocation{Prefix: m})
		found = append(found, m)
	}
	entry.ExtensionBlocks = append(entry.ExtensionBlocks, added...)
	return found
}

// reportExtensions reports the pod prefixes that are mapped outside the cluster's block.
func (a *allocator) reportExtensions(c *schema.Cluster, missing, found []netip.Prefix) {
	for i, p := range missing {
		if !slices.ContainsFunc(a.lock.Clusters[c.Name].ExtensionBlocks, func(h lockfile.PrefixAllocation) bool { return h.Prefix == found[i] }) {
			continue
		}
		hint := "add it to filters on global addresses; nothing moves"
		if live := a.top.MappablePodCIDRs(c); len(a.lock.Clusters[c.Name].Mappings) > len(live) {
			hint += "; hawser allocate --gc before the lock is committed frees the part of prefixes that the cluster no longer has"
		}
		a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "extension-block", Path: fieldpath.Key("clusters", c.Name) + ".podCIDRs",
			Summary: fmt.Sprintf("the block %s is full, so %s is mapped to the extension block %s", humanize.Join(a.lock.Blocks(c.Name), ", "), p, found[i]),
			Hint:    hint})
	}
}
