package project

import (
	"math/bits"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/spread"
)

// Backend is one receiver of slots.
type Backend struct {
	Key    string // identity: what the assignment depends on, besides the weight
	Weight int    // share in proportion; below 1 counts as 1
}

// Slots assigns n slots to backends and gives the index of the backend of each.
// Every backend gets its share by weight, rounded down or up. The result does
// not depend on the order of the backends, and a backend that comes or goes
// moves its own slots and few others: of 1024 slots less than 5 % besides, for up
// to 128 backends (a share that is rounded more coarsely moves more).
func Slots(n int, backends []Backend) []int {
	out := make([]int, n)
	if len(backends) <= 1 {
		return out
	}
	newAssignment(n, backends).run(out)
	return out
}

// assignment is bounded-load rendezvous hashing: each pair of slot and backend
// has a score, and pairs are taken from the highest score down as long as the
// slot is free and the backend below its share.
type assignment struct {
	order  []int    // backends by key
	hashes []uint64 // of the keys, in order
	floor  []int    // share of each rounded down, in order
	spare  int      // slots left when each has its floor: at most one more for each
}

func newAssignment(n int, backends []Backend) *assignment {
	a := &assignment{
		order:  make([]int, len(backends)),
		hashes: make([]uint64, len(backends)),
		floor:  make([]int, len(backends)),
		spare:  n,
	}
	total := 0
	for i, b := range backends {
		a.order[i] = i
		total += max(b.Weight, 1)
	}
	slices.SortStableFunc(a.order, func(x, y int) int { return strings.Compare(backends[x].Key, backends[y].Key) })
	for at, i := range a.order {
		a.hashes[at] = spread.Hash(backends[i].Key)
		a.floor[at] = n * max(backends[i].Weight, 1) / total
		a.spare -= a.floor[at]
	}
	return a
}

// run packs score, slot and backend of each pair into one number, as plain
// numbers sort several times faster than structures.
func (a *assignment) run(out []int) {
	slotBits, backendBits := bits.Len(uint(len(out))), bits.Len(uint(len(a.order)))
	low := uint64(1)<<(slotBits+backendBits) - 1
	pairs := make([]uint64, 0, len(out)*len(a.order))
	for slot := range out {
		salt := spread.Mix(uint64(slot) + 1)
		for b, h := range a.hashes {
			pairs = append(pairs, spread.Mix(h^salt)&^low|uint64(slot)<<backendBits|uint64(b))
		}
	}
	slices.Sort(pairs)
	load := make([]int, len(a.order))
	taken := make([]bool, len(out))
	for _, p := range slices.Backward(pairs) {
		b, slot := int(p&(1<<backendBits-1)), int(p&low>>backendBits)
		if taken[slot] || load[b] > a.floor[b] {
			continue
		}
		if load[b] == a.floor[b] {
			if a.spare == 0 {
				continue
			}
			a.spare--
		}
		load[b]++
		taken[slot] = true
		out[slot] = a.order[b]
	}
}
