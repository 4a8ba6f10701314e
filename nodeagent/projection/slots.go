package projection

import (
	"math/bits"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/stablehash"
)

// Backend is one backend to which Slots assigns slots.
type Backend struct {
	Key    string // identity: the assignment depends on it and the weight
	Weight int    // relative share; values below 1 count as 1
}

// Slots assigns n slots to backends and returns the index of each slot's backend. Every backend
// gets its share by weight, rounded down or up. The result does not depend on the order of the
// backends. If a backend is added or removed, its own slots move and few others: less than 5 % of
// 1024 slots, for up to 128 backends. With fewer slots, a larger share moves.
//
// Slots implements bounded-load rendezvous hashing. Each pair of slot and backend has a score.
// Slots processes the pairs from the highest score down. It assigns the slot if it is free and the
// backend is below its share.
func Slots(n int, backends []Backend) []int {
	out := make([]int, n)
	if len(backends) <= 1 {
		return out
	}
	order, total := make([]int, len(backends)), 0
	for i, b := range backends {
		order[i] = i
		total += max(b.Weight, 1)
	}
	slices.SortStableFunc(order, func(x, y int) int { return strings.Compare(backends[x].Key, backends[y].Key) })
	hashes := make([]uint64, len(backends)) // of the keys, in order
	floor := make([]int, len(backends))     // share of each backend, rounded down, in order
	spare := n                              // slots beyond all floors: each backend gets at most one
	for pos, i := range order {
		hashes[pos] = stablehash.Sum64(backends[i].Key)
		floor[pos] = n * max(backends[i].Weight, 1) / total
		spare -= floor[pos]
	}
	// One number has the score, slot and backend of a pair: numbers sort several times faster
	// than structures.
	slotBits, backendBits := bits.Len(uint(n)), bits.Len(uint(len(order)))
	low := uint64(1)<<(slotBits+backendBits) - 1
	pairs := make([]uint64, 0, n*len(order))
	for slot := range out {
		salt := stablehash.Mix64(uint64(slot) + 1)
		for b, h := range hashes {
			pairs = append(pairs, stablehash.Mix64(h^salt)&^low|uint64(slot)<<backendBits|uint64(b))
		}
	}
	slices.Sort(pairs)
	load := make([]int, len(order))
	taken := make([]bool, n)
	for _, p := range slices.Backward(pairs) {
		b, slot := int(p&(1<<backendBits-1)), int(p&low>>backendBits)
		if taken[slot] || load[b] > floor[b] {
			continue
		}
		if load[b] == floor[b] {
			if spare == 0 {
				continue
			}
			spare--
		}
		load[b]++
		taken[slot] = true
		out[slot] = order[b]
	}
	return out
}
