package mcs

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/fabric"
)

// AllocationRequest requests one address in each of its families.
type AllocationRequest struct {
	Key      string
	Created  time.Time
	Families []int        // 4, 6
	Current  []netip.Addr // recorded addresses; the first of a family counts
	// InUse reports that other clusters use its current addresses. An older request does not
	// get them.
	InUse bool
	// AlsoAllowed are prefixes outside the pools in which it may keep its current addresses.
	// The topology allocated these addresses while it declared the export.
	AlsoAllowed []netip.Prefix
}

// AllocationResult is the result of one AllocationRequest.
type AllocationResult struct {
	Addrs    []netip.Addr // in the order of its families, without families that have no pool
	Recorded []netip.Addr // the part of Addrs that was recorded
	Full     []int        // families without a free address
}

// Allocate allocates addresses from the first pool of each family. Results have the order of
// requests, which does not affect the addresses. A request keeps its current address. If several
// requests have the same one, requests in use come first, then the oldest. Other requests start at
// the hash of their key and get the next free address. isAllocated reports addresses that are
// allocated elsewhere.
func Allocate(pools []netip.Prefix, isAllocated func(netip.Addr) bool, requests []AllocationRequest) []AllocationResult {
	a := newAllocator(pools, isAllocated)
	order := byPriority(requests)
	kept := a.keepAll(requests, order)
	out := make([]AllocationResult, len(requests))
	for _, i := range order {
		out[i] = a.allocate(&requests[i], kept[i])
	}
	return out
}

// keptAddrs returns the current addresses that each request keeps, in the order of requests.
func keptAddrs(pools []netip.Prefix, isAllocated func(netip.Addr) bool, requests []AllocationRequest) [][]netip.Addr {
	kept := newAllocator(pools, isAllocated).keepAll(requests, byPriority(requests))
	out := make([][]netip.Addr, len(requests))
	for i := range requests {
		for _, fam := range requests[i].Families {
			if addr, has := kept[i][fam]; has {
				out[i] = append(out[i], addr)
			}
		}
	}
	return out
}

// byPriority returns the indexes of the requests: requests in use first, then the oldest.
func byPriority(requests []AllocationRequest) []int {
	order := make([]int, len(requests))
	for i := range requests {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		if requests[x].InUse != requests[y].InUse {
			if requests[x].InUse {
				return -1
			}
			return 1
		}
		return cmp.Or(requests[x].Created.Compare(requests[y].Created), cmp.Compare(requests[x].Key, requests[y].Key))
	})
	return order
}

func newAllocator(pools []netip.Prefix, isAllocated func(netip.Addr) bool) *allocator {
	a := &allocator{isAllocated: isAllocated, used: map[netip.Addr]bool{}, full: map[int]bool{}, pools: map[int]netip.Prefix{}}
	for _, p := range pools {
		if fam := fabric.Family(p.Addr()); !a.pools[fam].IsValid() {
			a.pools[fam] = p.Masked()
		}
	}
	return a
}

type allocator struct {
	pools       map[int]netip.Prefix
	full        map[int]bool // families without a free address
	isAllocated func(netip.Addr) bool
	used        map[netip.Addr]bool
}

func (a *allocator) usable(addr netip.Addr) bool {
	p := a.pools[fabric.Family(addr)]
	return p.IsValid() && p.Contains(addr) && !edge(p, addr) && a.free(addr)
}

// mayKeepOutside reports whether an address outside the pools may be kept.
func (a *allocator) mayKeepOutside(addr netip.Addr, within []netip.Prefix) bool {
	return !a.pools[fabric.Family(addr)].Contains(addr) && a.free(addr) &&
		slices.ContainsFunc(within, func(p netip.Prefix) bool { return p.Contains(addr) && !edge(p, addr) })
}

func (a *allocator) free(addr netip.Addr) bool { return !a.used[addr] && !a.isAllocated(addr) }

// keepAll returns the current addresses that each request keeps, by family.
func (a *allocator) keepAll(requests []AllocationRequest, order []int) []map[int]netip.Addr {
	kept := make([]map[int]netip.Addr, len(requests))
	for _, i := range order {
		request := &requests[i]
		out := map[int]netip.Addr{}
		for _, fam := range request.Families {
			i := slices.IndexFunc(request.Current, func(h netip.Addr) bool { return fabric.Family(h) == fam })
			if i >= 0 && (a.usable(request.Current[i]) || a.mayKeepOutside(request.Current[i], request.AlsoAllowed)) {
				a.used[request.Current[i]] = true
				out[fam] = request.Current[i]
			}
		}
		kept[i] = out
	}
	return kept
}

func (a *allocator) allocate(request *AllocationRequest, kept map[int]netip.Addr) AllocationResult {
	var g AllocationResult
	for _, fam := range request.Families {
		pool := a.pools[fam]
		if held, has := kept[fam]; has {
			g.Addrs, g.Recorded = append(g.Addrs, held), append(g.Recorded, held)
		} else if !pool.IsValid() {
			continue
		} else if addr, ok := a.find(request.Key, pool); ok {
			g.Addrs = append(g.Addrs, addr)
		} else {
			g.Full = append(g.Full, fam)
		}
	}
	return g
}

// find returns the first free address from the hash of the key. It searches a full pool only
// once.
func (a *allocator) find(key string, pool netip.Prefix) (netip.Addr, bool) {
	fam := fabric.Family(pool.Addr())
	if a.full[fam] {
		return netip.Addr{}, false
	}
	count := 1 << min(pool.Addr().BitLen()-pool.Bits(), maxBits)
	start := int(stablehash.Mix64(stablehash.Sum64(key)) % uint64(count))
	for i := range count {
		if addr := offset(pool, (start+i)%count); a.usable(addr) {
			a.used[addr] = true
			return addr, true
		}
	}
	a.full[fam] = true
	return netip.Addr{}, false
}

// maxBits limits the used part of a large pool: 2^24 addresses.
const maxBits = 24

// edge reports whether an address is the first or the last of its pool. Some programs treat these
// as network and broadcast address.
func edge(p netip.Prefix, addr netip.Addr) bool {
	return p.Addr().BitLen()-p.Bits() > 1 && (addr == p.Addr() || !p.Contains(addr.Next()))
}

// offset returns the n-th address of a pool, from 0.
func offset(p netip.Prefix, n int) netip.Addr {
	if p.Addr().Is4() {
		raw := p.Addr().As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+uint32(n))
		return netip.AddrFrom4(raw)
	}
	raw := p.Addr().As16()
	binary.BigEndian.PutUint64(raw[8:], binary.BigEndian.Uint64(raw[8:])+uint64(n))
	return netip.AddrFrom16(raw)
}
