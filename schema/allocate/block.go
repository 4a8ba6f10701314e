package allocate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// minHostBits is the size of the smallest block that is chosen automatically. It has room for a
// thousand exports and egress addresses, because a block never grows. It uses a 16384th of the
// default pool.
const minHostBits = 10

// minHostBits6 is minHostBits for IPv6, where space is plentiful.
const minHostBits6 = 16

// allocateBlocks allocates every cluster's block in each family that has a pool.
func (a *allocator) allocateBlocks() {
	addrCounts := make(map[string]int, len(a.top.Spec.Clusters)) // addresses in each cluster's block
	for _, d := range a.requests {
		if d.Kind != lockfile.ClaimGateway && d.Kind != lockfile.ClaimClusterSetIP {
			addrCounts[d.Cluster] += d.Count
		}
	}
	for _, pool := range a.top.GlobalPools() {
		b := &blockAllocator{allocator: a, prefixPool: newPrefixPool(pool.Masked()), owner: map[netip.Prefix]ownedBlock{}, addrCounts: addrCounts}
		b.allocatePins()
		b.retainBlocks()
		b.retainExtensions()
		b.reserveBlocks()
		b.createBlocks()
		a.prefixPools[b.pool.Addr().Is4()] = b.prefixPool
	}
	for name, c := range a.lock.Clusters {
		slices.SortFunc(c.Blocks, func(x, y lockfile.PrefixAllocation) int { return x.Prefix.Addr().BitLen() - y.Prefix.Addr().BitLen() })
		slices.SortFunc(c.Former, func(x, y lockfile.PrefixAllocation) int { return x.Prefix.Compare(y.Prefix) })
		c.SortExtensionBlocks()
		if len(c.Blocks) == 0 && len(c.Former) == 0 && len(c.ExtensionBlocks) == 0 && len(c.Mappings) == 0 && a.clusters[name] == nil && !a.hasClaims(name) {
			delete(a.lock.Clusters, name)
		}
	}
}

// hasClaims reports whether the lock has a claim of the cluster.
func (a *allocator) hasClaims(cluster string) bool {
	for s := range a.lock.Addrs {
		if s.Cluster == cluster {
			return true
		}
	}
	return false
}

// blockAllocator allocates the blocks of one family.
type blockAllocator struct {
	*allocator
	*prefixPool
	owner      map[netip.Prefix]ownedBlock
	addrCounts map[string]int
}

type ownedBlock struct {
	lockfile.PrefixAllocation
	cluster   string
	requested bool
}

func (b *blockAllocator) sameFamily(p netip.Prefix) bool {
	return p.Addr().Is4() == b.pool.Addr().Is4()
}

// current returns the locked block of a cluster in this family.
func (b *blockAllocator) current(name string) (lockfile.PrefixAllocation, bool) {
	if c := b.lock.Clusters[name]; c != nil {
		for _, block := range c.Blocks {
			if b.sameFamily(block.Prefix) {
				return block, true
			}
		}
	}
	return lockfile.PrefixAllocation{}, false
}

// setBlock replaces a cluster's block of this family; an invalid prefix removes it.
func (b *blockAllocator) setBlock(name string, block lockfile.PrefixAllocation) {
	c := b.lock.Cluster(name)
	c.Blocks = slices.DeleteFunc(c.Blocks, func(h lockfile.PrefixAllocation) bool { return b.sameFamily(h.Prefix) })
	if block.Prefix.IsValid() {
		c.Blocks = append(c.Blocks, block)
	}
}

func (b *blockAllocator) addOwner(cluster string, block lockfile.PrefixAllocation, requested bool) {
	b.markUsed(block.Prefix)
	b.owner[block.Prefix] = ownedBlock{block, cluster, requested}
}

// sortedClusters returns the topology's clusters, sorted by name.
func (b *blockAllocator) sortedClusters() []*schema.Cluster {
	out := make([]*schema.Cluster, 0, len(b.top.Spec.Clusters))
	for i := range b.top.Spec.Clusters {
		out = append(out, &b.top.Spec.Clusters[i])
	}
	slices.SortFunc(out, func(x, y *schema.Cluster) int { return cmp.Compare(x.Name, y.Name) })
	return out
}

// retainBlocks retains the blocks of the topology's clusters. A block outside the pool or
// with a conflict is dropped, so that the cluster moves.
func (b *blockAllocator) retainBlocks() {
	for _, c := range b.sortedClusters() {
		current, ok := b.current(c.Name)
		if !ok || c.PinInFamily(b.pool).IsValid() {
			continue
		}
		if !cidr.Contains(b.pool, current.Prefix) {
			b.reportMove(c.Name, current, fmt.Sprintf("into the pool %s", b.pool))
			b.setBlock(c.Name, lockfile.PrefixAllocation{})
		} else if t, overlaps := b.overlap(current.Prefix); overlaps {
			b.reportConflict(c.Name, current, b.owner[t])
			b.setBlock(c.Name, lockfile.PrefixAllocation{})
		} else {
			b.addOwner(c.Name, current, true)
		}
	}
}

// reportConflict reports a block that overlaps a block of another cluster.
func (b *blockAllocator) reportConflict(
	name string, block lockfile.PrefixAllocation, owner ownedBlock,
) {
	b.moving[name] = true
	b.list = append(b.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict",
		Path: fieldpath.Key("clusters", name) + ".blocks", Pos: block.Pos,
		Related: []diag.Related{{Path: fieldpath.Key("clusters", owner.cluster) + ".blocks", Pos: owner.Pos}},
		Summary: fmt.Sprintf("has the block %s, which overlaps %s of clusters[%s]; it gets another", block.Prefix, owner.Prefix, owner.cluster),
		Hint:    "both were allocated on different branches; every address of the cluster changes"})
}

// reserveBlocks reserves the blocks of removed clusters and the former blocks of moved ones.
func (b *blockAllocator) reserveBlocks() {
	for _, name := range slices.Sorted(maps.Keys(b.lock.Clusters)) {
		c := b.lock.Clusters[name]
		if b.clusters[name] == nil {
			c.Blocks = b.reservable(name, c.Blocks)
		}
		c.Former = b.reservable(name, c.Former)
	}
}

// reservable returns the prefixes of list that can stay reserved. A block that a member
// uses now is no longer reserved for a former owner.
func (b *blockAllocator) reservable(name string, list []lockfile.PrefixAllocation) []lockfile.PrefixAllocation {
	var out []lockfile.PrefixAllocation
	for _, h := range list {
		if b.sameFamily(h.Prefix) {
			if _, overlaps := b.overlap(h.Prefix); overlaps {
				continue
			}
			b.addOwner(name, h, false)
		}
		out = append(out, h)
	}
	return out
}

// createBlocks allocates a block for every cluster that lacks one: the largest first, so
// that they fit without holes, then by name. If choosing by name leaves a cluster
// without a block, all new blocks are the lowest free ones.
func (b *blockAllocator) createBlocks() {
	var requests []blockRequest
	for _, c := range b.sortedClusters() {
		if _, ok := b.current(c.Name); !ok && !c.PinInFamily(b.pool).IsValid() {
			requests = append(requests, blockRequest{c, b.blockSizes(c)})
		}
	}
	slices.SortStableFunc(requests, func(x, y blockRequest) int { return cmp.Compare(y.sizes[0], x.sizes[0]) })
	before := slices.Clone(b.used)
	blocks, failures := b.planBlocks(requests, (*prefixPool).choose)
	if failures > 0 {
		chosen := b.prefixPool
		b.prefixPool = newPrefixPool(b.pool)
		b.used = before
		packed, packedFailures := b.planBlocks(requests, func(s *prefixPool, host int, _ string) (netip.Prefix, bool) { return s.find(host) })
		if packedFailures < failures {
			blocks = packed
		} else {
			b.prefixPool = chosen
		}
	}
	for i, o := range requests {
		if !blocks[i].IsValid() {
			b.reportPoolFull(o.cluster, o.sizes)
			continue
		}
		block := lockfile.PrefixAllocation{Prefix: blocks[i]}
		b.setBlock(o.cluster.Name, block)
		b.owner[block.Prefix] = ownedBlock{block, o.cluster.Name, true}
		b.added = append(b.added, fieldpath.Key("clusters", o.cluster.Name)+".blocks")
	}
}

// blockRequest is a cluster that lacks a block, with the acceptable sizes.
type blockRequest struct {
	cluster *schema.Cluster
	sizes   []int // host bits, first choice first
}

// planBlocks picks a block for each request and counts the sizes for which no block was free.
func (b *blockAllocator) planBlocks(requests []blockRequest, pick func(*prefixPool, int, string) (netip.Prefix, bool)) (blocks []netip.Prefix, failures int) {
	blocks = make([]netip.Prefix, len(requests))
	for i, o := range requests {
		for _, host := range o.sizes {
			if p, ok := pick(b.prefixPool, host, o.cluster.Name); ok {
				b.markUsed(p)
				blocks[i] = p
				break
			}
			failures++
		}
	}
	return blocks, failures
}

// blockSizes returns the host bits of a cluster's block, first choice first.
func (b *blockAllocator) blockSizes(c *schema.Cluster) []int {
	g := b.top.Spec.Globalnet
	smallest := minHostBits
	if !b.pool.Addr().Is4() {
		smallest = minHostBits6
	}
	need := b.addrCounts[c.Name]
	if b.top.Spec.DynamicExports != nil {
		need *= 2 // half of the part without mappings is reserved for dynamic exports
	}
	sharedBits := max(smallest, cidr.Log2Ceil(2*need+2))
	minSharedBits := cidr.Log2Ceil(need + 2)
	if b.top.Spec.DynamicExports != nil {
		minSharedBits = max(minSharedBits, schema.MinDynamicBits)
	}
	if g.ClusterPrefix > 0 && b.pool.Addr().Is4() {
		return []int{32 - g.ClusterPrefix}
	}
	pods := slices.DeleteFunc(b.top.MappablePodCIDRs(c), func(p netip.Prefix) bool { return !b.sameFamily(p) })
	if len(pods) == 0 || g.Egress == fabric.EgressShared {
		return []int{sharedBits, minSharedBits}
	}
	mappedBits := 1 + max(cidr.SumBits(pods), sharedBits-1)
	if g.Egress == fabric.EgressMapped {
		return []int{mappedBits, 1 + max(cidr.SumBits(pods), minSharedBits)}
	}
	return []int{mappedBits, sharedBits, minSharedBits}
}

// reportPoolFull reports how many blocks are used and reserved, how many the pool can have, and
// which setting makes room.
func (b *blockAllocator) reportPoolFull(c *schema.Cluster, sizes []int) {
	active, removed, locked := 0, 0, 0
	for _, o := range b.owner {
		if o.requested {
			active++
		} else {
			removed++
		}
		if o.Pos.IsValid() {
			locked++
		}
	}
	space := b.pool.Addr().BitLen()
	fits := func(host int) string {
		return fmt.Sprintf("%s of /%d", countText(space-b.pool.Bits()-host), space-host)
	}
	hint := "use a larger globalnet.cidr, or smaller blocks (globalnet.clusterPrefix)"
	switch {
	case b.top.Spec.Globalnet.Egress == fabric.EgressMapped:
		hint = fmt.Sprintf("in a /%d each pod has its own address: use a larger globalnet.cidr, or globalnet: {egress: auto}", space-sizes[0])
	case len(sizes) == 3: // mapped if there is room, which the sizes before the last one are for
		hint = fmt.Sprintf("in a /%d each pod has its own address: use a larger globalnet.cidr, "+
			"or globalnet: {egress: shared}, with which the pool holds %s", space-sizes[0], fits(sizes[1]))
	}
	if locked > 0 {
		hint += "; locked blocks do not change"
	}
	if removed > 0 {
		hint += "; hawser allocate --gc frees the blocks of removed clusters"
	}
	b.list = append(b.list, diag.Diagnostic{Severity: diag.Error, Code: "pool-exhausted", Path: fieldpath.Key("clusters", c.Name),
		Summary: fmt.Sprintf("no room for its block in the pool %s, which holds %s: %d blocks are in use, %d reserved for removed clusters",
			b.pool, fits(sizes[0]), active, removed),
		Related: []diag.Related{{Path: "globalnet"}}, Hint: hint})
}

// countText returns two to the power of bits as text.
func countText(bits int) string {
	if bits > 62 {
		return fmt.Sprintf("2^%d", bits)
	}
	return strconv.Itoa(1 << max(bits, 0))
}
