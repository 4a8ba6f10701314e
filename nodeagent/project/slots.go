package project

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
)

// Backend is one receiver of slots.
type Backend struct {
	Key    string // identity: what the assignment depends on, besides the weight
	Weight int    // share in proportion; below 1 counts as 1
}

// Slots assigns n slots to backends and gives the index of the backend of each.
// Every backend gets its share by weight, rounded down or up. The result does
// not depend on the order of the backends, and a backend that comes or goes
// moves little more than its own slots.
func Slots(n int, backends []Backend) []int {
	out := make([]int, n)
	if len(backends) <= 1 {
		return out
	}
	return newAssignment(n, backends).run(out)
}

// assignment is bounded-load rendezvous hashing: each pair of slot and backend
// has a score, and pairs are taken from the highest score down as long as the
// slot is free and the backend below its share.
type assignment struct {
	order  []int    // backends by key
	hashes []uint64 // of the keys, in order
	floor  []int    // full slots of each, in order
	spare  int      // slots left when each has its floor: at most one more for each
}

func newAssignment(n int, backends []Backend) *assignment {
	a := &assignment{order: make([]int, len(backends))}
	for i := range backends {
		a.order[i] = i
	}
	slices.SortStableFunc(a.order, func(x, y int) int { return strings.Compare(backends[x].Key, backends[y].Key) })
	total := 0
	for _, b := range backends {
		total += max(b.Weight, 1)
	}
	a.spare = n
	for _, i := range a.order {
		h := fnv.New64a()
		_, _ = h.Write([]byte(backends[i].Key))
		a.hashes = append(a.hashes, h.Sum64())
		share := n * max(backends[i].Weight, 1) / total
		a.floor = append(a.floor, share)
		a.spare -= share
	}
	return a
}

// pair is one slot and one backend.
type pair struct {
	score   uint64
	slot    int
	backend int
}

func (a *assignment) run(out []int) []int {
	pairs := make([]pair, 0, len(out)*len(a.order))
	for slot := range out {
		for b, h := range a.hashes {
			pairs = append(pairs, pair{score: mix(h ^ mix(uint64(slot)+1)), slot: slot, backend: b})
		}
	}
	slices.SortFunc(pairs, func(x, y pair) int {
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.slot, y.slot), cmp.Compare(x.backend, y.backend))
	})
	load := make([]int, len(a.order))
	taken := make([]bool, len(out))
	for _, p := range pairs {
		if taken[p.slot] || load[p.backend] > a.floor[p.backend] {
			continue
		}
		if load[p.backend] == a.floor[p.backend] {
			if a.spare == 0 {
				continue
			}
			a.spare--
		}
		load[p.backend]++
		taken[p.slot] = true
		out[p.slot] = a.order[p.backend]
	}
	return out
}

// mix is the finalizer of SplitMix64: every bit of x moves every bit of the result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
