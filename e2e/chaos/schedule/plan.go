// Package schedule decides what goes wrong in a chaos run, and when. It is pure: the
// same seed, round and topology give the same schedule, so that any round can be
// repeated alone.
package schedule

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Node is one machine that faults are done to.
type Node struct {
	ID      string // CLUSTER/NODE
	Cluster string
	Gateway bool
	// Holds says that the ends of watched connections live here: power stays on.
	Holds bool
	// NeverKilled says that the agent's process stays, so that its memory can be
	// compared from the first round to the last.
	NeverKilled bool
}

// Topology is what a schedule is made for; the order of the nodes counts.
type Topology struct {
	Nodes    []Node
	Clusters []string
}

// Event is one fault, from its begin to its end.
type Event struct {
	At     time.Duration `json:"at"`  // after the begin of the round
	For    time.Duration `json:"for"` // how long it lasts
	Kind   string        `json:"kind"`
	Target string        `json:"target,omitempty"` // CLUSTER/NODE, CLUSTER, or nothing
	Value  string        `json:"value,omitempty"`
	Lane   int           `json:"lane"` // events of a lane follow each other
	Holds  []string      `json:"-"`    // what no other event touches meanwhile
}

const (
	// lanes is how many faults are in force at a time at most.
	lanes = 4
	// A fault lasts from shortest to longest, mean beyond shortest: typical.
	shortest = 200 * time.Millisecond
	typical  = 400 * time.Millisecond
	longest  = 2 * time.Second
	// pause is the most that lies between two faults of a lane.
	pause = 200 * time.Millisecond
)

// Round gives the schedule of one round (from 1 on) with n faults, in the order
// of their begin.
func Round(seed uint64, round, n int, t Topology) []Event {
	r := rand.New(rand.NewPCG(seed, uint64(round)))
	var free [lanes]time.Duration
	var out []Event
	for range n {
		lane := 0
		for i := range free {
			if free[i] < free[lane] {
				lane = i
			}
		}
		at := free[lane] + time.Duration(r.Int64N(int64(pause)))
		e, found := draw(r, t, busy(out, at))
		if !found {
			// All targets are taken: wait for the next that ends.
			next := at + longest
			for _, e := range out {
				if end := e.At + e.For; end > at {
					next = min(next, end)
				}
			}
			free[lane] = next
			at = free[lane]
			e, found = draw(r, t, busy(out, at))
		}
		if !found {
			continue
		}
		e.At, e.Lane = at.Round(time.Millisecond), lane
		free[lane] = e.At + e.For
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Event) int { return int(a.At - b.At) })
	return out
}

// busy lists what the events that are not over at a time hold.
func busy(events []Event, at time.Duration) map[string]bool {
	out := map[string]bool{}
	for _, e := range events {
		if e.At+e.For <= at {
			continue
		}
		for _, held := range e.Holds {
			out[held] = true
		}
	}
	return out
}

// draw picks a kind by weight and a target that is free.
func draw(r *rand.Rand, t Topology, taken map[string]bool) (Event, bool) {
	type choice struct {
		kind    Kind
		targets []target
	}
	var choices []choice
	total := 0
	for _, k := range Kinds() {
		targets := slices.DeleteFunc(k.on(t), func(at target) bool {
			return slices.ContainsFunc(at.holds, func(held string) bool { return taken[held] })
		})
		if len(targets) > 0 {
			choices = append(choices, choice{k, targets})
			total += k.weight
		}
	}
	if total == 0 {
		return Event{}, false
	}
	pick := r.IntN(total)
	for _, c := range choices {
		if pick >= c.kind.weight {
			pick -= c.kind.weight
			continue
		}
		at := c.targets[r.IntN(len(c.targets))]
		lasts := shortest + time.Duration(r.ExpFloat64()*float64(typical))
		e := Event{Kind: c.kind.Name, Target: at.name, Holds: at.holds, For: min(lasts, longest).Round(time.Millisecond)}
		if len(c.kind.values) > 0 {
			e.Value = c.kind.values[r.IntN(len(c.kind.values))]
		}
		return e, true
	}
	return Event{}, false
}
