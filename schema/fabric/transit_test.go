package fabric

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTransitPairs compares the counts with the paths of all pairs.
func TestTransitPairs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var names []string
		for i := range 2 + rng.IntN(10) {
			names = append(names, fmt.Sprint("c", i))
		}
		shape := Shape{Mode: []string{"", ModeHub, ModeExplicit}[rng.IntN(3)]}
		for i, a := range names {
			if rng.IntN(4) == 0 {
				shape.Hubs = append(shape.Hubs, a)
			}
			for _, b := range names[i+1:] {
				if rng.IntN(3) == 0 {
					shape.Edges = append(shape.Edges, SortedPair(a, b))
				}
			}
		}
		g := NewGraph(shape, names)
		want := map[string]int{}
		for _, a := range names {
			for b, path := range g.Paths(a, nil) {
				for _, via := range path[:len(path)-1] {
					if a < b {
						want[via]++
					}
				}
			}
		}
		if d := cmp.Diff(want, g.TransitPairs()); d != "" {
			t.Fatalf("seed %d: %+v (-want +have)\n%s", seed, shape, d)
		}
	}
}
