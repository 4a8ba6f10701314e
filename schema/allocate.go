package schema

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
)

// Allocate gives every cluster, gateway, egress rule, export and host of a valid
// topology the addresses that it needs and does not have yet, and every gateway
// its lane. What the lock
// holds stays where it is. lock itself is not changed; nil is an empty one.
//
// Warnings tell what had to move all the same: after a pin or a pool changed
// (code moves), or because two branches that both allocated were merged (code
// lock-conflict). Errors tell what does not fit; the lock that comes with them
// lacks it.
func Allocate(top *ClusterSet, lock *Lock) (*Lock, diag.List) {
	a := allocate(top, lock)
	return a.lock, a.list
}

func allocate(top *ClusterSet, lock *Lock) *allocator {
	a := &allocator{top: top, lock: newLock(), moving: map[string]bool{}, spaces: map[bool]*space{}}
	if lock != nil {
		a.lock = lock.clone()
		a.list = slices.Clone(lock.conflicts)
		a.lock.conflicts = nil
	}
	a.demands = demandsOf(top)
	a.members = make(map[string]*Cluster, len(top.Spec.Clusters))
	for i := range top.Spec.Clusters {
		a.members[top.Spec.Clusters[i].Name] = &top.Spec.Clusters[i]
	}
	a.allocateBlocks()
	a.allocateMappings()
	a.makeAreas()
	a.claim()
	a.reportMoves()
	a.fill()
	a.allocateLanes()
	a.list.Sort()
	return a
}

// allocator is the state of one call of Allocate.
type allocator struct {
	top     *ClusterSet
	lock    *Lock           // what becomes the result
	added   []string        // paths of what the lock lacked
	moving  map[string]bool // clusters whose move is reported already
	list    diag.List
	members map[string]*Cluster
	demands []demand
	spaces  map[bool]*space    // what is left of the global pools, by whether it is IPv4
	areas   map[string][]*area // by cluster; tunnelArea and vipArea for the pools
}

// Names of the areas that belong to no cluster; no cluster has such a name.
const (
	tunnelArea = "/tunnel"
	vipArea    = "/services"
)

// clone copies what Allocate and GC change.
func (l *Lock) clone() *Lock {
	out := newLock()
	maps.Copy(out.addrs, l.addrs)
	maps.Copy(out.lanes, l.lanes)
	for name, c := range l.clusters {
		out.clusters[name] = &lockedCluster{
			blocks:   slices.Clone(c.blocks),
			annexes:  slices.Clone(c.annexes),
			former:   slices.Clone(c.former),
			mappings: maps.Clone(c.mappings),
		}
	}
	out.conflicts, out.released = l.conflicts, l.released
	return out
}

// makeAreas sets up the address space of the pools and of each cluster's blocks.
func (a *allocator) makeAreas() {
	a.areas = make(map[string][]*area, len(a.lock.clusters)+2)
	for _, p := range a.top.TunnelPools() {
		a.areas[tunnelArea] = append(a.areas[tunnelArea], newArea(p.Masked()))
	}
	for _, p := range a.top.ServicePools() {
		area := newArea(p.Masked())
		if a.top.Spec.DynamicExports != nil {
			area.spare = dynamicVIPs(p)
		}
		a.areas[vipArea] = append(a.areas[vipArea], area)
	}
	for name, c := range a.lock.clusters {
		for _, b := range c.blocks {
			area := newArea(b.prefix)
			for _, m := range c.mappings {
				if b.prefix.Overlaps(m.prefix) {
					area.avoid = append(area.avoid, m.prefix)
				}
			}
			if a.top.Spec.DynamicExports != nil {
				area.spare = c.dynamic(b.prefix)
			}
			a.areas[name] = append(a.areas[name], area)
		}
	}
}

// claim lets every slot keep the addresses that it has. Of two slots with the
// same address one that the topology asks for comes before one that it does
// not; otherwise the first in order keeps it.
func (a *allocator) claim() {
	live := make(map[slot]bool, len(a.demands))
	for _, d := range a.demands {
		live[d.slot] = true
	}
	var gone []slot
	for _, s := range a.lock.sorted() {
		if live[s] {
			a.claimSlot(s, true)
		} else {
			gone = append(gone, s)
		}
	}
	for _, s := range gone {
		a.claimSlot(s, false)
	}
}

func (a *allocator) claimSlot(s slot, live bool) {
	h := a.lock.addrs[s]
	kept := make([]netip.Addr, 0, len(h.addrs))
	for _, addr := range h.addrs {
		if a.claimAddr(s, addr, live) {
			kept = append(kept, addr)
		}
	}
	if len(kept) == 0 && !live {
		delete(a.lock.addrs, s)
		return
	}
	a.lock.addrs[s] = held{addrs: kept, pos: h.pos}
}

// claimAddr reports whether the slot keeps the address. One of a family that
// has no pool any more is kept for the day when the pool comes back.
func (a *allocator) claimAddr(s slot, addr netip.Addr, live bool) bool {
	area := a.areaFor(s, addr.Is4())
	if area == nil {
		return !hasFamily(a.poolsOf(s.kind), addr)
	}
	if !area.usable(addr) {
		if live {
			area.moved++
		}
		return false
	}
	owner, taken := area.used[addr]
	if !taken {
		area.used[addr] = s
		return true
	}
	then := "it gets another"
	if !live {
		then = "it is no longer reserved for what was removed"
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict",
		Path: s.path(), Pos: a.lock.addrs[s].pos,
		Related: []diag.Related{{Path: owner.path(), Pos: a.lock.addrs[owner].pos}},
		Summary: fmt.Sprintf("has the address %s, which belongs to %s; %s", addr, owner.path(), then),
		Hint:    "both were allocated on different branches; whoever resolved the old address sees the new one after the next commit"})
	return false
}

// poolsOf gives the pools that slots of a kind have their addresses from.
func (a *allocator) poolsOf(kind slotKind) []netip.Prefix {
	switch kind {
	case slotGateway:
		return a.top.TunnelPools()
	case slotVIP:
		return a.top.ServicePools()
	}
	return a.top.GlobalPools()
}

func hasFamily(pools []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() })
}

func (a *allocator) areaFor(s slot, is4 bool) *area {
	for _, area := range a.areas[s.area()] {
		if area.block.Addr().Is4() == is4 {
			return area
		}
	}
	return nil
}

// reportMoves tells how many addresses had to leave each area.
func (a *allocator) reportMoves() {
	report := func(name, path, what string) {
		for _, area := range a.areas[name] {
			if area.moved > 0 {
				a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "moves", Path: path,
					Summary: fmt.Sprintf("%s that move to %s, as they are outside of it: %d", what, area.block, area.moved),
					Hint:    "connections to the old addresses break; put the old value back to keep them"})
			}
		}
	}
	report(tunnelArea, "tunnel.cidr", "tunnel addresses")
	report(vipArea, "services.cidr", "clusterset IPs")
	for name := range a.areas {
		if name != tunnelArea && name != vipArea && !a.moving[name] {
			report(name, at("clusters", name), "addresses")
		}
	}
}

// fill gives every demand what it lacks.
func (a *allocator) fill() {
	full := map[*area]*shortage{}
	for _, d := range a.demands {
		h := a.lock.addrs[d.slot]
		before := len(h.addrs)
		for _, area := range a.areas[d.area()] {
			for range d.count - countIn(h.addrs, area.block) {
				addr, ok := area.next(d.slot)
				if !ok {
					noteShortage(full, area, d)
					continue
				}
				h.addrs = append(slices.Clip(h.addrs), addr)
			}
		}
		if len(h.addrs) > before {
			a.lock.addrs[d.slot] = h
			a.added = append(a.added, d.slot.path())
		}
	}
	a.reportShortages(full)
}

func countIn(addrs []netip.Addr, block netip.Prefix) int {
	n := 0
	for _, addr := range addrs {
		if block.Contains(addr) {
			n++
		}
	}
	return n
}
