package allocate

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/lockfile"
)

// prefixPool allocates aligned parts of one prefix.
type prefixPool struct {
	pool netip.Prefix
	used []netip.Prefix // disjoint, sorted
	// nextFree is the start of the next search, by host bits. Parts are never freed, so
	// no part below it is free.
	nextFree map[int]netip.Prefix
	// region is the first region that choose tries next, by host bits.
	region map[int]netip.Prefix
}

func newPrefixPool(pool netip.Prefix) *prefixPool {
	return &prefixPool{pool: pool, nextFree: map[int]netip.Prefix{}, region: map[int]netip.Prefix{}}
}

// overlap returns a used part that overlaps p.
func (s *prefixPool) overlap(p netip.Prefix) (netip.Prefix, bool) {
	i, _ := slices.BinarySearchFunc(s.used, p, func(t, p netip.Prefix) int { return t.Addr().Compare(p.Addr()) })
	for _, j := range []int{i - 1, i} {
		if j >= 0 && j < len(s.used) && s.used[j].Overlaps(p) {
			return s.used[j], true
		}
	}
	return netip.Prefix{}, false
}

// markUsed marks p as used; p must not overlap a used part.
func (s *prefixPool) markUsed(p netip.Prefix) {
	i, _ := slices.BinarySearchFunc(s.used, p, netip.Prefix.Compare)
	s.used = slices.Insert(s.used, i, p)
}

// find returns the lowest free part with the given number of host bits.
func (s *prefixPool) find(host int) (netip.Prefix, bool) {
	length := s.pool.Addr().BitLen() - host
	if length < s.pool.Bits() {
		return netip.Prefix{}, false
	}
	candidate, ok := s.nextFree[host]
	if !ok {
		candidate = netip.PrefixFrom(s.pool.Addr(), length)
	}
	for candidate.IsValid() && s.pool.Contains(candidate.Addr()) {
		s.nextFree[host] = candidate
		t, clash := s.overlap(candidate)
		if !clash {
			return candidate, true
		}
		next := cidr.Last(candidate)
		if t.Bits() < length {
			next = cidr.Last(t)
		}
		candidate = netip.PrefixFrom(next.Next(), length) // invalid past the last address of the family
	}
	s.nextFree[host] = netip.Prefix{}
	return netip.Prefix{}, false
}

// choose returns a free part that depends on the key, so that branches which allocate
// at the same time seldom choose the same part. Parts of one size share a region; the
// lowest region that is not nearly full is used, so that small parts leave room for
// large ones. The upper half of the space is used only if the lower half has no such
// region. If no region has room, choose returns the lowest free part.
func (s *prefixPool) choose(host int, key string) (netip.Prefix, bool) {
	bits := min(regionBits, cidr.HostBits(s.pool)-1-host)
	if bits < 2 {
		return s.find(host)
	}
	start := stablehash.Mix64(stablehash.Sum64(key)) >> (64 - bits)
	region, known := s.region[host]
	if !known {
		region = netip.PrefixFrom(s.pool.Addr(), s.pool.Addr().BitLen()-host-bits)
		s.region[host] = region
	}
	for region.IsValid() && s.pool.Contains(region.Addr()) {
		if p, ok := s.chooseIn(region, bits, start); ok {
			return p, true
		}
		region = netip.PrefixFrom(cidr.Last(region).Next(), region.Bits())
		s.region[host] = region
	}
	return s.find(host)
}

// regionBits makes regions of 256 parts: two branches that add a cluster each
// choose the same part once in 256 times.
const regionBits = 8

// chooseIn returns the first free part of a region from part number start on. It returns
// false if three quarters of the region are used.
func (s *prefixPool) chooseIn(region netip.Prefix, bits int, start uint64) (netip.Prefix, bool) {
	search := func(a netip.Addr) int {
		i, _ := slices.BinarySearchFunc(s.used, a, func(t netip.Prefix, a netip.Addr) int { return t.Addr().Compare(a) })
		return i
	}
	if 4*(search(cidr.Last(region))-search(region.Addr())) >= 3<<bits {
		return netip.Prefix{}, false
	}
	for i := range uint64(1) << bits {
		p := cidr.Subnet(region, bits, (start+i)&(1<<bits-1))
		if _, clash := s.overlap(p); !clash {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// nthAddr returns the nth address after from. The last 16 bits of from, or as many as n
// needs, must be zero.
func nthAddr(from netip.Addr, n uint16) netip.Addr {
	if from.Is4() {
		raw := from.As4()
		raw[2], raw[3] = raw[2]|byte(n>>8), raw[3]|byte(n)
		return netip.AddrFrom4(raw)
	}
	raw := from.As16()
	raw[14], raw[15] = raw[14]|byte(n>>8), raw[15]|byte(n)
	return netip.AddrFrom16(raw)
}

// addrPool allocates single addresses of one block or pool: the address derived from the
// name of the claim if it is free, otherwise the lowest free one.
type addrPool struct {
	block    netip.Prefix
	last     netip.Addr
	mappings []netip.Prefix // mappings inside the block
	reserved netip.Prefix   // range without new allocations; invalid if absent
	used     map[netip.Addr]lockfile.Claim
	cursor   netip.Addr
	moved    int // addresses of requested claims that are outside the block now
}

func newAddrPool(block netip.Prefix) *addrPool {
	return &addrPool{block: block, last: cidr.Last(block), used: map[netip.Addr]lockfile.Claim{}, cursor: block.Addr()}
}

// usable reports whether a claim may have the address: inside the block and outside
// mappings, but neither the first (network) nor the last (broadcast) address.
func (a *addrPool) usable(addr netip.Addr) bool {
	return a.block.Contains(addr) && addr != a.block.Addr() && addr != a.last && !a.mappingOf(addr).IsValid()
}

func (a *addrPool) mappingOf(addr netip.Addr) netip.Prefix {
	for _, p := range a.mappings {
		if p.Contains(addr) {
			return p
		}
	}
	return netip.Prefix{}
}

// maxProbes is the maximum number of addresses that the search by name tries.
const maxProbes = 64

// next allocates a free address for s. It returns false if the pool is full.
func (a *addrPool) next(s lockfile.Claim) (netip.Addr, bool) {
	if key, offset, spreads := s.HashKey(); spreads {
		bits := cidr.HostBits(a.block) - 2 // pods are mapped to the upper half, and dynamic exports have the second quarter
		if s.Kind == lockfile.ClaimClusterSetIP || s.Kind == lockfile.ClaimGateway {
			bits++
		}
		if bits = min(bits, 16); bits >= minSpreadBits {
			start := stablehash.Mix64(stablehash.Sum64(key))>>(64-bits) + offset
			for i := range uint64(maxProbes) {
				addr := nthAddr(a.block.Addr(), uint16((start+i)&(1<<bits-1)))
				if _, used := a.used[addr]; !used && a.usable(addr) && !(a.reserved.IsValid() && a.reserved.Contains(addr)) {
					a.used[addr] = s
					return addr, true
				}
			}
		}
	}
	return a.lowest(s)
}

// lowest allocates the lowest free address for s.
func (a *addrPool) lowest(s lockfile.Claim) (netip.Addr, bool) {
	for a.cursor.IsValid() && a.block.Contains(a.cursor) {
		addr := a.cursor
		if p := a.mappingOf(addr); p.IsValid() {
			a.cursor = cidr.Last(p).Next()
			continue
		}
		if a.reserved.IsValid() && a.reserved.Contains(addr) {
			a.cursor = cidr.Last(a.reserved).Next()
			continue
		}
		a.cursor = addr.Next()
		if _, used := a.used[addr]; !used && a.usable(addr) {
			a.used[addr] = s
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// minSpreadBits is the size of the smallest part of a block or pool in which addresses depend on
// names. In a smaller part most names would collide.
const minSpreadBits = 6
