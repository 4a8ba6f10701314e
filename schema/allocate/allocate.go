// Package allocate assigns the global blocks, addresses and gateway ordinals that the lock of a
// topology lacks, moves items on request, and detects stale locks. Existing allocations stay.
package allocate

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/lockfile"
)

// Allocate returns the lock with all addresses and gateway ordinals that a valid
// topology needs. Existing allocations stay. It does not change lock; nil is an
// empty lock.
//
// Warnings list the allocations that moved: because a pin or a pool changed (code
// moves), or because two branches that both allocated were merged (code
// lock-conflict). Errors list the requests that do not fit; the returned lock lacks
// their addresses.
func Allocate(top *schema.ClusterSet, lock *lockfile.Lock) (*lockfile.Lock, diag.List) {
	a := run(top, lock)
	return a.lock, a.list
}

func run(top *schema.ClusterSet, lock *lockfile.Lock) *allocator {
	a := &allocator{top: top, lock: lockfile.New(), moving: map[string]bool{}, prefixPools: map[bool]*prefixPool{}}
	if lock != nil {
		a.lock = lock.Clone()
		a.list = slices.Clone(lock.Conflicts)
		a.lock.Conflicts = nil
	}
	a.requests = lockfile.Requests(top)
	a.requested = make(map[lockfile.Claim]bool, len(a.requests))
	for _, d := range a.requests {
		a.requested[d.Claim] = true
	}
	a.clusters = make(map[string]*schema.Cluster, len(top.Spec.Clusters))
	for i := range top.Spec.Clusters {
		a.clusters[top.Spec.Clusters[i].Name] = &top.Spec.Clusters[i]
	}
	a.allocateBlocks()
	a.allocateMappings()
	a.reportUnreachablePods()
	a.makeAddrPools()
	a.retainAddrs()
	a.reportMoves()
	a.assignMissing()
	a.allocateOrdinals()
	a.list.Sort()
	return a
}

// allocator is the state of one call of Allocate.
type allocator struct {
	top         *schema.ClusterSet
	lock        *lockfile.Lock  // the result
	added       []string        // paths of new allocations
	moving      map[string]bool // clusters whose move is reported already
	list        diag.List
	clusters    map[string]*schema.Cluster
	requests    []lockfile.Request
	requested   map[lockfile.Claim]bool // the claims of requests
	prefixPools map[bool]*prefixPool    // the global pools, by whether they are IPv4
	addrPools   map[string][]*addrPool  // by cluster, lockfile.TunnelPool or lockfile.VIPPool
}

// makeAddrPools sets up the address space of the pools and of each cluster's blocks.
func (a *allocator) makeAddrPools() {
	a.addrPools = make(map[string][]*addrPool, len(a.lock.Clusters)+2)
	for _, p := range a.top.TunnelPools() {
		a.addrPools[lockfile.TunnelPool] = append(a.addrPools[lockfile.TunnelPool], newAddrPool(p.Masked()))
	}
	for _, p := range a.top.ServicePools() {
		pool := newAddrPool(p.Masked())
		if a.top.Spec.DynamicExports != nil {
			pool.reserved = schema.UpperHalf(p)
		}
		a.addrPools[lockfile.VIPPool] = append(a.addrPools[lockfile.VIPPool], pool)
	}
	for name, c := range a.lock.Clusters {
		for _, b := range c.Blocks {
			pool := newAddrPool(b.Prefix)
			for _, m := range c.Mappings {
				if b.Prefix.Overlaps(m.Prefix) {
					pool.mappings = append(pool.mappings, m.Prefix)
				}
			}
			if a.top.Spec.DynamicExports != nil {
				pool.reserved = c.Dynamic(b.Prefix)
			}
			a.addrPools[name] = append(a.addrPools[name], pool)
		}
	}
}

// retainAddrs retains the addresses of all claims. If two claims have the same address, the
// requested claim keeps the address; otherwise the first claim in order does.
func (a *allocator) retainAddrs() {
	claims := a.lock.Sorted()
	for _, requested := range []bool{true, false} {
		for _, s := range claims {
			if a.requested[s] != requested {
				continue
			}
			h := a.lock.Addrs[s]
			h.Addrs = slices.DeleteFunc(slices.Clone(h.Addrs), func(addr netip.Addr) bool { return !a.claimAddr(s, addr, requested) })
			if a.lock.Addrs[s] = h; len(h.Addrs) == 0 && !requested {
				delete(a.lock.Addrs, s)
			}
		}
	}
}

// claimAddr reports whether the claim keeps the address. A claim keeps an address whose family no
// longer has a pool, in case the pool returns.
func (a *allocator) claimAddr(s lockfile.Claim, addr netip.Addr, requested bool) bool {
	i := slices.IndexFunc(a.addrPools[s.Pool()], func(x *addrPool) bool { return x.block.Addr().Is4() == addr.Is4() })
	if i < 0 {
		pools := a.top.GlobalPools()
		switch s.Kind {
		case lockfile.ClaimGateway:
			pools = a.top.TunnelPools()
		case lockfile.ClaimClusterSetIP:
			pools = a.top.ServicePools()
		}
		return !slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() })
	}
	pool := a.addrPools[s.Pool()][i]
	if !pool.usable(addr) {
		if requested {
			pool.moved++
		}
		return false
	}
	owner, used := pool.used[addr]
	if !used {
		pool.used[addr] = s
		return true
	}
	consequence := "it gets another"
	if !requested {
		consequence = "it is no longer reserved for the removed item"
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict",
		Path: s.Path(), Pos: a.lock.Addrs[s].Pos,
		Related: []diag.Related{{Path: owner.Path(), Pos: a.lock.Addrs[owner].Pos}},
		Summary: fmt.Sprintf("has the address %s, which belongs to %s; %s",
			addr, owner.Path(), consequence),
		Hint: "both were allocated on different branches; clients that resolved the old address see the new one after the next commit"})
	return false
}

// reportMoves reports the number of addresses that moved into each pool.
func (a *allocator) reportMoves() {
	report := func(name, path, what string) {
		for _, pool := range a.addrPools[name] {
			if pool.moved > 0 {
				a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "moves", Path: path,
					Summary: fmt.Sprintf("%s that move into %s from outside: %d", what, pool.block, pool.moved),
					Hint:    "connections to the old addresses break; put the old value back to keep them"})
			}
		}
	}
	report(lockfile.TunnelPool, "tunnel.cidr", "tunnel addresses")
	report(lockfile.VIPPool, "services.cidr", "clusterset IPs")
	for name := range a.addrPools {
		if name != lockfile.TunnelPool && name != lockfile.VIPPool && !a.moving[name] {
			report(name, fieldpath.Key("clusters", name), "addresses")
		}
	}
}

// assignMissing assigns the missing addresses of all requests.
func (a *allocator) assignMissing() {
	full := map[*addrPool]*shortage{}
	for _, d := range a.requests {
		h := a.lock.Addrs[d.Claim]
		before := len(h.Addrs)
		for _, pool := range a.addrPools[d.Pool()] {
			missing := d.Count
			for _, addr := range h.Addrs {
				if pool.block.Contains(addr) {
					missing--
				}
			}
			for range missing {
				addr, ok := pool.next(d.Claim)
				if !ok {
					addShortage(full, pool, d)
					continue
				}
				h.Addrs = append(slices.Clip(h.Addrs), addr)
			}
		}
		if len(h.Addrs) > before {
			a.lock.Addrs[d.Claim] = h
			a.added = append(a.added, d.Claim.Path())
		}
	}
	a.reportShortages(full)
}
