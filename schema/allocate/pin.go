package allocate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// pinPath returns the topology path of a cluster's pin in this family.
func (b *blockAllocator) pinPath(name string) string {
	if b.pool.Addr().Is4() {
		return fieldpath.Key("clusters", name) + ".globalCIDR"
	}
	return fieldpath.Key("clusters", name) + ".globalIPv6CIDR"
}

// allocatePins allocates every pinned block.
func (b *blockAllocator) allocatePins() {
	for _, c := range b.sortedClusters() {
		pin := c.PinInFamily(b.pool)
		if !pin.IsValid() {
			continue
		}
		if t, overlaps := b.overlap(pin); overlaps {
			b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "block-overlap", Path: b.pinPath(c.Name),
				Summary: fmt.Sprintf("%s overlaps %s of clusters[%s]", pin, t, b.owner[t].cluster), Hint: "pin blocks that do not overlap",
				Related: []diag.Related{{Path: b.pinPath(b.owner[t].cluster)}}})
			continue
		}
		current, ok := b.current(c.Name)
		if !ok || current.Prefix != pin {
			if b.rejectPin(c, pin) {
				continue
			}
			if ok {
				b.reportLeftBlock(c.Name, current, pin)
			}
			current = lockfile.PrefixAllocation{Prefix: pin}
			b.added = append(b.added, fieldpath.Key("clusters", c.Name)+".blocks")
		}
		b.setBlock(c.Name, current)
		b.addOwner(c.Name, current, true)
	}
}

// rejectPin reports whether a new pin overlaps a block of another cluster, and adds the
// finding. Otherwise the other cluster would have to move.
func (b *blockAllocator) rejectPin(c *schema.Cluster, pin netip.Prefix) bool {
	for _, other := range slices.Sorted(maps.Keys(b.lock.Clusters)) {
		if other == c.Name {
			continue
		}
		for _, block := range slices.Concat(b.lock.Clusters[other].Blocks, b.lock.Clusters[other].ExtensionBlocks, b.lock.Clusters[other].Former) {
			member := b.clusters[other]
			active := slices.Contains(b.lock.Blocks(other), block.Prefix)
			if !block.Prefix.Overlaps(pin) || active && member != nil && member.PinInFamily(b.pool).IsValid() {
				continue
			}
			hint := fmt.Sprintf("pin another block, or pin clusters[%s] elsewhere, which moves it", other)
			if member == nil || !active {
				hint = "pin another block, or free it with hawser allocate --gc when it is no longer used"
			}
			b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "block-reserved", Path: b.pinPath(c.Name),
				Summary: fmt.Sprintf("%s overlaps %s, which is reserved for clusters[%s]", pin, block.Prefix, other), Hint: hint,
				Related: []diag.Related{{Path: fieldpath.Key("clusters", other) + ".blocks", Pos: block.Pos}}})
			return true
		}
	}
	return false
}

// reportLeftBlock reports that a pin moves a cluster out of its block, or that the block grows
// if the pin contains it; then no address moves.
func (b *blockAllocator) reportLeftBlock(
	name string, from lockfile.PrefixAllocation, pin netip.Prefix,
) {
	if !cidr.Contains(pin, from.Prefix) {
		b.reportMove(name, from, "to its pin "+pin.String())
		return
	}
	b.list = append(b.list, diag.Diagnostic{Severity: diag.Warning, Code: "grows", Path: b.pinPath(name), Pos: from.Pos,
		Summary: fmt.Sprintf("grows from its block %s to its pin %s; no address moves", from.Prefix, pin)})
}

// reportMove reports that a cluster leaves a block, and reserves the block for the cluster.
func (b *blockAllocator) reportMove(name string, from lockfile.PrefixAllocation, why string) {
	c := b.lock.Cluster(name)
	c.Former = append(c.Former, from)
	b.moving[name] = true
	b.list = append(b.list, diag.Diagnostic{Severity: diag.Warning, Code: "moves", Path: b.pinPath(name), Pos: from.Pos,
		Summary: fmt.Sprintf("moves from its block %s %s", from.Prefix, why),
		Hint:    "every address of the cluster outside the new block changes; connections to it break once"})
}
