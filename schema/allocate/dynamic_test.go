package allocate

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/lockfile"
)

// TestDynamicMovesNothing turns dynamic exports on and off between random topologies on one lock.
// No allocation moves. New allocations are outside of the reserved ranges while dynamic exports are
// on.
func TestDynamicMovesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		lock := lockfile.New()
		for round := range 10 {
			top := newTopology(pick(r, 24), pick(r, 30))
			setExporters(top)
			if r.IntN(2) == 0 {
				top.Spec.DynamicExports = &schema.DynamicExports{Rules: []schema.DynamicRule{{Namespaces: []string{"*"}}}}
			}
			next, list := Allocate(top, lock)
			if len(list) > 0 {
				t.Fatalf("seed %d round %d: %v", seed, round, list)
			}
			for s, h := range lock.Addrs {
				if got := next.Addrs[s].Addrs; !slices.Equal(got[:min(len(got), len(h.Addrs))], h.Addrs) {
					t.Fatalf("seed %d round %d: %s moved from %v to %v", seed, round, s.Path(), h.Addrs, got)
				}
			}
			for _, p := range reservedRanges(top, next) {
				for s, h := range next.Addrs {
					for _, a := range h.Addrs {
						if p.Contains(a) && !slices.Contains(lock.Addrs[s].Addrs, a) {
							t.Fatalf("seed %d round %d: %s got %s, which is in %s", seed, round, s.Path(), a, p)
						}
					}
				}
			}
			lock = next
		}
	}
}

// reservedRanges returns every range that is reserved for dynamic exports.
func reservedRanges(top *schema.ClusterSet, lock *lockfile.Lock) []netip.Prefix {
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
		c := &lockfile.Cluster{Mappings: map[netip.Prefix]lockfile.PrefixAllocation{}}
		if tt.mapping != "" {
			c.Mappings[netip.MustParsePrefix("10.0.0.0/16")] = lockfile.PrefixAllocation{Prefix: netip.MustParsePrefix(tt.mapping)}
		}
		if have := c.Dynamic(netip.MustParsePrefix(tt.block)).String(); have != tt.want {
			t.Errorf("%s: have %s, want %s", tt.block, have, tt.want)
		}
	}
}
