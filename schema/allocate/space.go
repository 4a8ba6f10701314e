package allocate

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/lockfile"
)

// prefixPool hands out aligned parts of one prefix, and remembers what is taken.
type prefixPool struct {
	pool netip.Prefix
	used []netip.Prefix // disjoint, sorted
	// from is where the search for a part of each size goes on: as parts are only
	// ever taken, nothing below it becomes free.
	from map[int]netip.Prefix
	// region is where the choice of a part of each size goes on, for the same reason.
	region map[int]netip.Prefix
}

func newPrefixPool(pool netip.Prefix) *prefixPool {
	return &prefixPool{pool: pool, from: map[int]netip.Prefix{}, region: map[int]netip.Prefix{}}
}

// overlap gives a taken part that overlaps p.
func (s *prefixPool) overlap(p netip.Prefix) (netip.Prefix, bool) {
	i, _ := slices.BinarySearchFunc(s.used, p, func(t, p netip.Prefix) int { return t.Addr().Compare(p.Addr()) })
	for _, j := range []int{i - 1, i} {
		if j >= 0 && j < len(s.used) && s.used[j].Overlaps(p) {
			return s.used[j], true
		}
	}
	return netip.Prefix{}, false
}

// markUsed notes that p is in use; p must not overlap what is taken.
func (s *prefixPool) markUsed(p netip.Prefix) {
	i, _ := slices.BinarySearchFunc(s.used, p, netip.Prefix.Compare)
	s.used = slices.Insert(s.used, i, p)
}

// find gives the lowest free part with the given number of host bits.
func (s *prefixPool) find(host int) (netip.Prefix, bool) {
	length := s.pool.Addr().BitLen() - host
	if length < s.pool.Bits() {
		return netip.Prefix{}, false
	}
	candidate, ok := s.from[host]
	if !ok {
		candidate = netip.PrefixFrom(s.pool.Addr(), length)
	}
	for candidate.IsValid() && s.pool.Contains(candidate.Addr()) {
		s.from[host] = candidate
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
	s.from[host] = netip.Prefix{}
	return netip.Prefix{}, false
}

// choose gives a free part that depends on the key rather than on what is free
// next, so that branches which allocate at the same time seldom take the same one.
// Parts of a size stand together in regions of their own, of which the lowest that
// is not nearly full is filled: small parts leave room for large ones. The highest
// half of the space is left alone as long as the other one has such a region.
// Where there is none it is the lowest free part.
func (s *prefixPool) choose(host int, key string) (netip.Prefix, bool) {
	bits := min(regionBits, cidr.HostBits(s.pool)-1-host)
	if bits < 2 {
		return s.find(host)
	}
	start := stablehash.Mix64(stablehash.Sum64(key)) >> (64 - bits)
	region, begun := s.region[host]
	if !begun {
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

// chooseIn gives the first free part of a region from the one numbered start on;
// false when as much as three quarters of the region are taken.
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

// nthAddr gives the nth address from one on whose last 16 bits, or as many as n
// needs, are zero.
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

// addrPool hands out single addresses of one block or pool: those that the slot's name
// asks for where they are free, otherwise the lowest.
type addrPool struct {
	block  netip.Prefix
	last   netip.Addr
	avoid  []netip.Prefix // parts for something else
	spare  netip.Prefix   // nothing new is given out in here; invalid = nowhere
	used   map[netip.Addr]lockfile.Claim
	cursor netip.Addr
	moved  int // addresses of live slots that are no longer inside
}

func newAddrPool(block netip.Prefix) *addrPool {
	return &addrPool{block: block, last: cidr.Last(block), used: map[netip.Addr]lockfile.Claim{}, cursor: block.Addr()}
}

// usable reports whether an address may be given to a slot: inside the block,
// but neither its first (network) nor its last (broadcast) address.
func (a *addrPool) usable(addr netip.Addr) bool {
	return a.block.Contains(addr) && addr != a.block.Addr() && addr != a.last && !a.avoided(addr).IsValid()
}

func (a *addrPool) avoided(addr netip.Addr) netip.Prefix {
	for _, p := range a.avoid {
		if p.Contains(addr) {
			return p
		}
	}
	return netip.Prefix{}
}

// maxProbes bounds the search for the address that a name asks for.
const maxProbes = 64

// next gives a free address to s; false when the area is full.
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
				if _, used := a.used[addr]; !used && a.usable(addr) && !(a.spare.IsValid() && a.spare.Contains(addr)) {
					a.used[addr] = s
					return addr, true
				}
			}
		}
	}
	return a.lowest(s)
}

// lowest gives the lowest free address to s.
func (a *addrPool) lowest(s lockfile.Claim) (netip.Addr, bool) {
	for a.cursor.IsValid() && a.block.Contains(a.cursor) {
		addr := a.cursor
		if p := a.avoided(addr); p.IsValid() {
			a.cursor = cidr.Last(p).Next()
			continue
		}
		if a.spare.IsValid() && a.spare.Contains(addr) {
			a.cursor = cidr.Last(a.spare).Next()
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

// minSpreadBits is the size of the smallest part of a block or pool in which names
// choose addresses: in less they would meet anyway.
const minSpreadBits = 6
