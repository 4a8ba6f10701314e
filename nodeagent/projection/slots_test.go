package projection_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
)

func randomBackends(rng *rand.Rand, n, weights int) []projection.Backend {
	var out []projection.Backend
	for i := range n {
		key := fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), i)
		out = append(out, projection.Backend{Key: key, Weight: 1 + rng.IntN(weights)})
	}
	return out
}

func TestSlotsShares(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, desired.SlotsMany, desired.SlotsMany} {
		for _, count := range []int{1, 2, 3, 7, 8, 31, 128, 1500} {
			backends := randomBackends(rng, count, 5)
			loads, total := make([]int, count), 0
			for _, i := range projection.Slots(n, backends) {
				loads[i]++
			}
			for _, b := range backends {
				total += b.Weight
			}
			for i, b := range backends {
				low, high := n*b.Weight/total, (n*b.Weight+total-1)/total
				if loads[i] < low || loads[i] > high {
					t.Errorf("%d slots, %d backends: weight %d of %d has %d, want %d to %d", n, count, b.Weight, total, loads[i], low, high)
				}
			}
		}
	}
}

func TestSlotsWithoutBackends(t *testing.T) {
	t.Parallel()
	if have := projection.Slots(4, nil); !slices.Equal(have, []int{0, 0, 0, 0}) {
		t.Errorf("have %v", have)
	}
}

func TestSlotsDoNotDependOnOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		backends := randomBackends(rng, 2+rng.IntN(20), 3)
		shuffled := slices.Clone(backends)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		want, have := projection.Slots(64, backends), projection.Slots(64, shuffled)
		for slot := range want {
			if backends[want[slot]].Key != shuffled[have[slot]].Key {
				t.Fatalf("slot %d: %s in one order, %s in another", slot, backends[want[slot]].Key, shuffled[have[slot]].Key)
			}
		}
	}
}

// TestSlotsMoveLittle removes one of count backends, which is the reverse of adding one. In
// addition to the slots of that backend, at most 5 % of all slots may move.
func TestSlotsMoveLittle(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 32, 64, 128} {
		t.Run(strconv.Itoa(count), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, uint64(count)))
			rounds, worst, sum := max(600/count, 10), 0.0, 0.0
			for range rounds {
				backends := randomBackends(rng, count, 1)
				moved := movedBy(desired.SlotsMany, backends, rng.IntN(count))
				beyond := float64(moved)/float64(desired.SlotsMany) - 1/float64(count)
				worst, sum = max(worst, beyond), sum+beyond
			}
			t.Logf("moved beyond the share: worst %.3f, mean %.3f of %d rounds", worst, sum/float64(rounds), rounds)
			if worst > 0.05 {
				t.Errorf("moved %.3f beyond the share, want at most 0.05", worst)
			}
		})
	}
}

func movedBy(n int, backends []projection.Backend, removed int) int {
	less := slices.Delete(slices.Clone(backends), removed, removed+1)
	before, after := projection.Slots(n, backends), projection.Slots(n, less)
	moved := 0
	for slot := range before {
		if backends[before[slot]].Key != less[after[slot]].Key {
			moved++
		}
	}
	return moved
}

func BenchmarkSlots(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, n := range []struct{ slots, backends int }{{64, 8}, {1024, 128}} {
		backends := randomBackends(rng, n.backends, 1)
		b.Run(fmt.Sprintf("%d-%d", n.slots, n.backends), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				projection.Slots(n.slots, backends)
			}
		})
	}
}
