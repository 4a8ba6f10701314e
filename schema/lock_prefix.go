package schema

import (
	"math/bits"
	"net/netip"
	"slices"
)

// lastOf gives the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for i := range raw {
		host := min(max(8*(i+1)-p.Bits(), 0), 8)
		raw[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// hostBits gives the number of bits that a prefix leaves for hosts.
func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// log2Ceil gives the smallest n with 2^n >= count.
func log2Ceil(count int) int {
	if count <= 1 {
		return 0
	}
	return bits.Len(uint(count - 1))
}

// sumBits gives the host bits of the smallest power of two that holds all
// prefixes together, whatever their sizes.
func sumBits(prefixes []netip.Prefix) int {
	sizes := make([]int, len(prefixes))
	for i, p := range prefixes {
		sizes[i] = hostBits(p)
	}
	slices.Sort(sizes)
	// Pack from the smallest: counting whole slots of the size in hand, rounded
	// up when the size grows, never needs numbers of 128 bits.
	size, count := 0, 0
	for _, s := range sizes {
		for ; size < s; size++ {
			count = (count + 1) / 2
		}
		count++
	}
	return size + log2Ceil(count)
}

// space hands out aligned parts of one prefix, first fit, and remembers what is taken.
type space struct {
	pool  netip.Prefix
	taken []netip.Prefix // disjoint, sorted
	// from is where the search for a part of each size goes on: as parts are only
	// ever taken, nothing below it becomes free.
	from map[int]netip.Prefix
}

// overlap gives a taken part that overlaps p.
func (s *space) overlap(p netip.Prefix) (netip.Prefix, bool) {
	i, _ := slices.BinarySearchFunc(s.taken, p, func(t, p netip.Prefix) int { return t.Addr().Compare(p.Addr()) })
	for _, j := range []int{i - 1, i} {
		if j >= 0 && j < len(s.taken) && s.taken[j].Overlaps(p) {
			return s.taken[j], true
		}
	}
	return netip.Prefix{}, false
}

// take notes that p is in use; p must not overlap what is taken.
func (s *space) take(p netip.Prefix) {
	i, _ := slices.BinarySearchFunc(s.taken, p, netip.Prefix.Compare)
	s.taken = slices.Insert(s.taken, i, p)
}

// find gives the lowest free part with the given number of host bits.
func (s *space) find(host int) (netip.Prefix, bool) {
	length := s.pool.Addr().BitLen() - host
	if length < s.pool.Bits() {
		return netip.Prefix{}, false
	}
	if s.from == nil {
		s.from = map[int]netip.Prefix{}
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
		next := lastOf(candidate)
		if t.Bits() < length {
			next = lastOf(t)
		}
		candidate = netip.PrefixFrom(next.Next(), length) // invalid past the last address of the family
	}
	s.from[host] = netip.Prefix{}
	return netip.Prefix{}, false
}

// area hands out single addresses of one block or pool, lowest free first.
type area struct {
	block  netip.Prefix
	last   netip.Addr
	avoid  []netip.Prefix // parts for something else
	spare  netip.Prefix   // nothing new is given out in here; invalid = nowhere
	used   map[netip.Addr]slot
	cursor netip.Addr
	moved  int // addresses of live slots that are no longer inside
}

func newArea(block netip.Prefix) *area {
	return &area{block: block, last: lastOf(block), used: map[netip.Addr]slot{}, cursor: block.Addr()}
}

// usable reports whether an address may be given to a slot: inside the block,
// but neither its first (network) nor its last (broadcast) address.
func (a *area) usable(addr netip.Addr) bool {
	return a.block.Contains(addr) && addr != a.block.Addr() && addr != a.last && !a.avoided(addr).IsValid()
}

func (a *area) avoided(addr netip.Addr) netip.Prefix {
	for _, p := range a.avoid {
		if p.Contains(addr) {
			return p
		}
	}
	return netip.Prefix{}
}

// next gives the lowest free address to s; false when the area is full.
func (a *area) next(s slot) (netip.Addr, bool) {
	for a.cursor.IsValid() && a.block.Contains(a.cursor) {
		addr := a.cursor
		if p := a.avoided(addr); p.IsValid() {
			a.cursor = lastOf(p).Next()
			continue
		}
		if a.spare.IsValid() && a.spare.Contains(addr) {
			a.cursor = lastOf(a.spare).Next()
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
