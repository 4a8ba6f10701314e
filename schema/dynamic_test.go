package schema

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
)

// TestDynamicMovesNothing switches dynamic exports on and off between random
// topologies on one lock: nothing moves, and what is given out while they are on
// lies outside the ranges that are kept for them.
func TestDynamicMovesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		lock := newLock()
		for round := range 10 {
			top := world(pick(r, 24), pick(r, 30))
			exportsIn(top)
			if r.IntN(2) == 0 {
				top.Spec.DynamicExports = &DynamicExports{Rules: []DynamicRule{{Namespaces: []string{"*"}}}}
			}
			next, list := Allocate(top, lock)
			if len(list) > 0 {
				t.Fatalf("seed %d round %d: %v", seed, round, list)
			}
			for s, h := range lock.addrs {
				if got := next.addrs[s].addrs; !slices.Equal(got[:min(len(got), len(h.addrs))], h.addrs) {
					t.Fatalf("seed %d round %d: %s moved from %v to %v", seed, round, s.path(), h.addrs, got)
				}
			}
			for _, p := range keptRanges(top, next) {
				for s, h := range next.addrs {
					for _, a := range h.addrs {
						if p.Contains(a) && !slices.Contains(lock.addrs[s].addrs, a) {
							t.Fatalf("seed %d round %d: %s got %s, which is in %s", seed, round, s.path(), a, p)
						}
					}
				}
			}
			lock = next
		}
	}
}

// keptRanges gives every range that is kept for dynamic exports.
func keptRanges(top *ClusterSet, lock *Lock) []netip.Prefix {
	out := top.DynamicVIPs()
	for _, c := range top.Spec.Clusters {
		out = append(out, lock.DynamicRanges(top, c.Name)...)
	}
	return out
}

func TestDynamicRanges(t *testing.T) {
	t.Parallel()
	tests := []struct {
		block   string
		mapping string
		want    string
	}{
		{block: "242.1.0.0/16", want: "242.1.64.0/18"},
		{block: "242.1.0.0/24", want: "242.1.0.64/26"},
		{block: "242.1.0.0/28", want: "242.1.0.4/30"},
		{block: "242.1.0.0/29", want: "invalid Prefix"},
		{block: "242.2.0.0/15", mapping: "242.3.0.0/16", want: "242.2.128.0/17"},
		{block: "242.0.0.0/14", mapping: "242.1.0.0/16", want: "242.0.0.0/16"}, // it grew
		{block: "242.0.0.0/14", mapping: "242.0.0.0/15", want: "invalid Prefix"},
		{block: "fd42::/112", want: "fd42::4000/114"},
	}
	for _, tt := range tests {
		c := &lockedCluster{mappings: map[netip.Prefix]heldPrefix{}}
		if tt.mapping != "" {
			c.mappings[netip.MustParsePrefix("10.0.0.0/16")] = heldPrefix{prefix: netip.MustParsePrefix(tt.mapping)}
		}
		if have := c.dynamic(netip.MustParsePrefix(tt.block)).String(); have != tt.want {
			t.Errorf("%s: have %s, want %s", tt.block, have, tt.want)
		}
	}
}

// TestAsUsable: a block that Validate asks for holds what is declared, and the one
// of half its size does not.
func TestAsUsable(t *testing.T) {
	t.Parallel()
	top := &ClusterSet{Spec: Spec{DynamicExports: &DynamicExports{Rules: []DynamicRule{{Namespaces: []string{"*"}}}}}}
	for n := 1; n < 5000; n++ {
		bits := fitting(top.asUsable(n), 32)
		block := netip.PrefixFrom(netip.MustParseAddr("242.0.0.0"), bits)
		if have := top.forDeclared(block); have < n {
			t.Fatalf("a /%d leaves %d addresses, want %d", bits, have, n)
		}
		smaller := netip.PrefixFrom(block.Addr(), bits+1)
		if have := top.forDeclared(smaller); have >= n && hostBits(smaller) >= minDynamicBits {
			t.Fatalf("a /%d is asked for where a /%d would do for %d", bits, bits+1, n)
		}
	}
}

func TestAnnotationsBounded(t *testing.T) {
	t.Parallel()
	top := world([]int{1}, []int{1})
	top.Spec.Exports[0].Annotations = map[string]string{"note": strings.Repeat("x", maxAnnotations)}
	want := "the annotations have 16388 bytes, 16384 are allowed"
	if list := Validate(top); !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Summary == want }) {
		t.Errorf("have %v, want %s", list, want)
	}
}
