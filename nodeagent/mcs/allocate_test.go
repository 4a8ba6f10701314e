package mcs_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/mcs"
)

func sameAddr(a, b netip.Addr) bool { return a == b }

// TestAllocateLaws checks that for any requests, addresses are in their pools and unique. A
// rightful holder keeps its address, and the order of the requests has no effect.
func TestAllocateLaws(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	pools := prefixes("242.1.192.0/26", "fd42:1::/122")
	for round := range 400 {
		declared := addr(fmt.Sprintf("242.1.192.%d", 1+rng.IntN(62)))
		given := func(a netip.Addr) bool { return a == declared }
		asks := make([]mcs.AllocationRequest, rng.IntN(80))
		for i := range asks {
			asks[i] = mcs.AllocationRequest{Key: fmt.Sprintf("team/%d", i), Created: at(rng.IntN(5)), Families: [][]int{{4}, {6}, {4, 6}, {6, 4}}[rng.IntN(4)]}
			if rng.IntN(2) == 0 {
				asks[i].Current = addrs(fmt.Sprintf("242.1.192.%d", rng.IntN(70)))
			}
		}
		have := mcs.Allocate(pools, given, asks)
		checkGrants(t, round, pools, declared, asks, have)

		// The results become the records: each request keeps its addresses.
		for i := range asks {
			asks[i].Current = have[i].Addrs
		}
		for i, g := range mcs.Allocate(pools, given, asks) {
			if fmt.Sprint(g.Addrs) != fmt.Sprint(have[i].Addrs) || fmt.Sprint(g.Recorded) != fmt.Sprint(g.Addrs) {
				t.Fatalf("round %d: %s had %v and has %v", round, asks[i].Key, have[i].Addrs, g)
			}
		}
		order := rng.Perm(len(asks))
		mixed := make([]mcs.AllocationRequest, len(asks))
		for i, n := range order {
			mixed[i] = asks[n]
		}
		for i, g := range mcs.Allocate(pools, given, mixed) {
			if fmt.Sprint(g.Addrs) != fmt.Sprint(have[order[i]].Addrs) {
				t.Fatalf("round %d: order matters to %s", round, mixed[i].Key)
			}
		}
	}
}

func checkGrants(t *testing.T, round int, pools []netip.Prefix, declared netip.Addr, asks []mcs.AllocationRequest, have []mcs.AllocationResult) {
	t.Helper()
	used := map[netip.Addr]string{}
	for i, g := range have {
		if len(g.Addrs)+len(g.Full) != len(asks[i].Families) {
			t.Fatalf("round %d: %s wants families %v and got %+v", round, asks[i].Key, asks[i].Families, g)
		}
		for _, a := range g.Addrs {
			if other, taken := used[a]; taken || a == declared || !pools[0].Contains(a) && !pools[1].Contains(a) {
				t.Fatalf("round %d: %s got %s, which is of %q", round, asks[i].Key, a, other)
			}
			used[a] = asks[i].Key
		}
	}
	// The oldest holder of an address keeps it.
	for i := range asks {
		for _, a := range asks[i].Current {
			if used[a] == asks[i].Key || a == declared || !pools[0].Contains(a) || a == addr("242.1.192.0") || a == addr("242.1.192.63") {
				continue
			}
			if asks[i].Families[0] == 6 && len(asks[i].Families) == 1 {
				continue // the request has no IPv4
			}
			for j := range asks {
				if asks[j].Key == used[a] && !asks[j].Created.After(asks[i].Created) {
					a = netip.Addr{}
				}
			}
			if a.IsValid() {
				t.Fatalf("round %d: %s lost %s to %q, which is younger", round, asks[i].Key, a, used[a])
			}
		}
	}
}

// TestAllocateIsStable checks that a new request moves no holder of an address.
func TestAllocateIsStable(t *testing.T) {
	t.Parallel()
	pools := prefixes("242.1.192.0/24")
	none := func(netip.Addr) bool { return false }
	var asks []mcs.AllocationRequest
	for i := range 200 {
		asks = append(asks, mcs.AllocationRequest{Key: fmt.Sprintf("team/%d", i), Created: at(i % 60), Families: []int{4}})
		have := mcs.Allocate(pools, none, asks)
		for j := range asks {
			if len(asks[j].Current) > 0 && have[j].Addrs[0] != asks[j].Current[0] {
				t.Fatalf("%s moved from %s to %s when %s came", asks[j].Key, asks[j].Current[0], have[j].Addrs[0], asks[i].Key)
			}
			asks[j].Current = have[j].Addrs
		}
	}
}

func BenchmarkAllocate(b *testing.B) {
	pools := prefixes("242.1.128.0/17")
	none := func(netip.Addr) bool { return false }
	asks := make([]mcs.AllocationRequest, 5000)
	for i := range asks {
		asks[i] = mcs.AllocationRequest{Key: fmt.Sprintf("team/%d", i), Families: []int{4}}
	}
	for b.Loop() {
		mcs.Allocate(pools, none, asks)
	}
}
