package allocate

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// Move returns a lock with new addresses for one item. item is its line in the lock: a
// cluster's blocks, a gateway, an egress rule, a host, or a path that ends in vips, ips
// or egressIPs. The old addresses stay reserved for the item until GC: a block under
// former, an address after the new one. They are also listed under released, so that
// lockmerge.OntoPublished accepts the move. Errors report an unknown or pinned item, and
// pools without room.
func Move(l *lockfile.Lock, top *schema.ClusterSet, item string) (*lockfile.Lock, diag.List) {
	for i := range top.Spec.Clusters {
		if c := &top.Spec.Clusters[i]; item == fieldpath.Key("clusters", c.Name)+".blocks" {
			return moveBlocks(l, top, c, item)
		}
	}
	a := run(top, l)
	i := slices.IndexFunc(a.requests, func(d lockfile.Request) bool { return d.Claim.Path() == item })
	if i < 0 {
		return nil, diag.List{{Severity: diag.Error, Code: "unknown-item", Path: item,
			Summary: "is not an item with addresses in this topology",
			Hint:    "name a line of the lock, such as clusters[g1].blocks or exports[shop/web].vips"}}
	}
	d, full := a.requests[i], map[*addrPool]*shortage{}
	var addrs []netip.Addr
	for _, pool := range a.addrPools[d.Pool()] {
		for range d.Count {
			addr, ok := pool.next(d.Claim)
			if !ok {
				addShortage(full, pool, d)
				continue
			}
			addrs = append(addrs, addr)
		}
	}
	a.reportShortages(full)
	moved := lockfile.New()
	moved.Addrs[d.Claim] = a.lock.Addrs[d.Claim]
	a.lock.Addrs[d.Claim] = lockfile.Allocation{Addrs: slices.Concat(addrs, moved.Addrs[d.Claim].Addrs)}
	return a.lock.WithReleased(moved), a.list
}

// moveBlocks allocates new blocks for a cluster, and new addresses in them.
func moveBlocks(l *lockfile.Lock, top *schema.ClusterSet, c *schema.Cluster, item string) (*lockfile.Lock, diag.List) {
	if pins := c.Pins(); len(pins) > 0 {
		return nil, diag.List{{Severity: diag.Error, Code: "pinned", Path: item,
			Summary: fmt.Sprintf("is pinned to %s", humanize.Join(pins, ", ")),
			Hint:    "change the pin (globalCIDR, globalIPv6CIDR), which moves the cluster"}}
	}
	out, moved := l.Clone(), lockfile.New()
	moved.Cluster(c.Name).Blocks = out.Cluster(c.Name).Blocks
	entry := out.Cluster(c.Name)
	entry.Former, entry.Blocks = append(entry.Former, entry.Blocks...), nil
	lock, found := Allocate(top, out)
	for i := range found {
		if found[i].Code == "moves" { // the requested move
			found[i].Hint = "connections to the old addresses break once"
		}
	}
	return lock.WithReleased(moved), found
}
