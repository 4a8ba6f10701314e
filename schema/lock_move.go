package schema

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
)

// Move gives the lock in which one thing of the topology has other addresses than
// before. item is its line in the lock: a cluster's blocks, or what ends in vips,
// ips or egressIPs, a gateway, an egress rule or a host. What it had stays reserved
// for it until GC, a block under former, an address behind the new one, and stands
// under released, by which Over knows that the move is meant. Errors tell an item that is not there or
// pinned, and what has no room.
func (l *Lock) Move(top *ClusterSet, item string) (*Lock, diag.List) {
	for i := range top.Spec.Clusters {
		if c := &top.Spec.Clusters[i]; item == at("clusters", c.Name)+".blocks" {
			return l.moveBlocks(top, c, item)
		}
	}
	a := allocate(top, l)
	i := slices.IndexFunc(a.demands, func(d demand) bool { return d.slot.path() == item })
	if i < 0 {
		return nil, diag.List{{Severity: diag.Error, Code: "unknown-item", Path: item,
			Summary: "is nothing of the topology that has addresses",
			Hint:    "name a line of the lock, such as clusters[g1].blocks or exports[shop/web].vips"}}
	}
	d, full := a.demands[i], map[*area]*shortage{}
	var addrs []netip.Addr
	for _, area := range a.areas[d.area()] {
		for range d.count {
			addr, ok := area.next(d.slot)
			if !ok {
				noteShortage(full, area, d)
				continue
			}
			addrs = append(addrs, addr)
		}
	}
	a.reportShortages(full)
	moved := newLock()
	moved.addrs[d.slot] = a.lock.addrs[d.slot]
	a.lock.addrs[d.slot] = held{addrs: slices.Concat(addrs, moved.addrs[d.slot].addrs)}
	return a.lock.releasing(moved), a.list
}

// moveBlocks gives a cluster other blocks, and all that is in them other addresses.
func (l *Lock) moveBlocks(top *ClusterSet, c *Cluster, item string) (*Lock, diag.List) {
	if pins := c.Pins(); len(pins) > 0 {
		return nil, diag.List{{Severity: diag.Error, Code: "pinned", Path: item,
			Summary: fmt.Sprintf("is pinned to %s", list(pins)),
			Hint:    "change the pin (globalCIDR, globalIPv6CIDR), which moves the cluster"}}
	}
	out, moved := l.clone(), newLock()
	moved.cluster(c.Name).blocks = out.cluster(c.Name).blocks
	entry := out.cluster(c.Name)
	entry.former, entry.blocks = append(entry.former, entry.blocks...), nil
	lock, found := Allocate(top, out)
	for i := range found {
		if found[i].Code == "moves" { // which is what was asked for
			found[i].Hint = "connections to the old addresses break once"
		}
	}
	return lock.releasing(moved), found
}

// releasing gives the lock with more under released.
func (l *Lock) releasing(more *Lock) *Lock {
	out := l.clone()
	out.released = newLock()
	out.released.add(l.released)
	out.released.add(more)
	return out
}
