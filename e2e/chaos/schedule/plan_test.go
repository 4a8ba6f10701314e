package schedule

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// end returns the end of the last event.
func end(events []Event) time.Duration {
	var last time.Duration
	for _, e := range events {
		last = max(last, e.At+e.For)
	}
	return last
}

func topology() Topology {
	t := Topology{Clusters: []string{"g1", "g2", "g3"}}
	for _, c := range t.Clusters {
		for _, name := range []string{"a", "b", "c", "w1", "w2"} {
			t.Nodes = append(t.Nodes, Node{
				ID: c + "/" + name, Cluster: c, Gateway: name < "d", KeepsPower: name == "w1", NeverKilled: name == "c",
			})
		}
	}
	return t
}

// TestRoundIsPure tests that the schedule depends only on seed, round and topology.
func TestRoundIsPure(t *testing.T) {
	t.Parallel()
	for round := 1; round < 20; round++ {
		if a, b := Round(7, round, 25, topology()), Round(7, round, 25, topology()); !reflect.DeepEqual(a, b) {
			t.Fatalf("round %d differs:\n%v\n%v", round, a, b)
		}
	}
	if reflect.DeepEqual(Round(7, 1, 25, topology()), Round(8, 1, 25, topology())) {
		t.Error("two seeds give the same schedule")
	}
	if reflect.DeepEqual(Round(7, 1, 25, topology()), Round(7, 2, 25, topology())) {
		t.Error("two rounds give the same schedule")
	}
}

// TestRoundKeepsRules checks the rules for every schedule.
func TestRoundKeepsRules(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	most, together := time.Duration(0), 0
	for seed := range uint64(200) {
		events := Round(seed, 1, 25, topology())
		if len(events) != 25 {
			t.Fatalf("seed %d: %d events", seed, len(events))
		}
		for i, e := range events {
			seen[e.Kind]++
			if e.For < shortest || e.For > longest {
				t.Errorf("seed %d: %v lasts too short or too long", seed, e)
			}
			open := 1
			for _, other := range events[:i] {
				if other.At+other.For <= e.At {
					continue
				}
				open++
				if slices.ContainsFunc(e.Locks, func(held string) bool { return slices.Contains(other.Locks, held) }) {
					t.Errorf("seed %d: %v and %v use the same target", seed, other, e)
				}
				if other.Track == e.Track {
					t.Errorf("seed %d: %v and %v overlap in their track", seed, other, e)
				}
			}
			together = max(together, open)
		}
		most = max(most, end(events))
	}
	if together != tracks {
		t.Errorf("%d faults at a time at most, want %d", together, tracks)
	}
	if most > 8*time.Second {
		t.Errorf("a round of 25 takes %s", most)
	}
	for _, k := range Kinds() {
		if seen[k.Name] < 20 {
			t.Errorf("kind %s was drawn %d times in 5000", k.Name, seen[k.Name])
		}
	}
}

// TestRoundSpares checks that no schedule has a fault on a node protected from it.
func TestRoundSpares(t *testing.T) {
	t.Parallel()
	nodes := map[string]Node{}
	for _, n := range topology().Nodes {
		nodes[n.ID] = n
	}
	for seed := range uint64(200) {
		for _, e := range Round(seed, 3, 25, topology()) {
			k, known := KindOf(e.Kind)
			n, isNode := nodes[e.Target]
			switch {
			case !known:
				t.Errorf("unknown kind: %v", e)
			case isNode && CutsPower(e.Kind) && (n.KeepsPower || n.NeverKilled):
				t.Errorf("power taken from a node with watched connections: %v", e)
			case isNode && n.NeverKilled && strings.HasSuffix(k.Start, "-agent") && k.Start != "freeze-agent",
				isNode && n.NeverKilled && k.Start == "kill-gateway":
				t.Errorf("the agent of a witness is killed: %v", e)
			case isNode && k.Side == "wan" && !n.Gateway:
				t.Errorf("a worker has no wan: %v", e)
			case len(k.values) > 0 && e.Value == "":
				t.Errorf("no value: %v", e)
			}
		}
	}
}
