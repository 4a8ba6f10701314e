package project_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/project"
)

func randomBackends(rng *rand.Rand, n, weights int) []project.Backend {
	var out []project.Backend
	for i := range n {
		key := fmt.Sprintf("10.%d.%d.%d", rng.IntN(256), rng.IntN(256), i)
		out = append(out, project.Backend{Key: key, Weight: 1 + rng.IntN(weights)})
	}
	return out
}

func TestSlotsShares(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, desired.SlotsFew, desired.SlotsMany} {
		for _, count := range []int{1, 2, 3, 7, 8, 31, 128, 1500} {
			backends := randomBackends(rng, count, 5)
			loads, total := make([]int, count), 0
			for _, i := range project.Slots(n, backends) {
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
	if have := project.Slots(4, nil); !slices.Equal(have, []int{0, 0, 0, 0}) {
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
		want, have := project.Slots(64, backends), project.Slots(64, shuffled)
		for slot := range want {
			if backends[want[slot]].Key != shuffled[have[slot]].Key {
				t.Fatalf("slot %d: %s in one order, %s in another", slot, backends[want[slot]].Key, shuffled[have[slot]].Key)
			}
		}
	}
}

// TestSlotsMoveLittle removes one of count backends (and, read the other way,
// adds one): beyond the share of that one, few slots may move.
func TestSlotsMoveLittle(t *testing.T) {
	t.Parallel()
	tests := []struct {
		slots, backends, rounds int
		worst, mean             float64 // share of all slots that may move besides
	}{
		{desired.SlotsFew, 2, 100, 0, 0},
		{desired.SlotsFew, 4, 100, 0.15, 0.05},
		{desired.SlotsFew, 8, 100, 0.16, 0.07},
		{desired.SlotsMany, 9, 20, 0.05, 0.03},
		{desired.SlotsMany, 32, 20, 0.05, 0.04},
		{desired.SlotsMany, 128, 10, 0.05, 0.04},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d-%d", tt.slots, tt.backends), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, 6))
			worst, sum := 0.0, 0.0
			for range tt.rounds {
				backends := randomBackends(rng, tt.backends, 1)
				moved := movedBy(tt.slots, backends, rng.IntN(tt.backends))
				beyond := float64(moved)/float64(tt.slots) - 1/float64(tt.backends)
				worst, sum = max(worst, beyond), sum+beyond
			}
			if mean := sum / float64(tt.rounds); worst > tt.worst || mean > tt.mean {
				t.Errorf("moved beyond the share: worst %.3f, mean %.3f; want at most %.3f, %.3f", worst, mean, tt.worst, tt.mean)
			}
		})
	}
}

func movedBy(n int, backends []project.Backend, removed int) int {
	less := slices.Delete(slices.Clone(backends), removed, removed+1)
	before, after := project.Slots(n, backends), project.Slots(n, less)
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
				project.Slots(n.slots, backends)
			}
		})
	}
}
