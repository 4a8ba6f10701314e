// Package schedule selects the faults of a chaos run and their times. It is pure: the same
// seed, round and topology produce the same schedule, so any round can be repeated alone.
package schedule

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Node is one node of the lab.
type Node struct {
	ID      string // CLUSTER/NODE
	Cluster string
	Gateway bool
	// KeepsPower protects a node with pods of watched connections from power loss.
	KeepsPower bool
	// NeverKilled protects the agent's process, so its memory can be compared between the
	// first round and the last.
	NeverKilled bool
}

// Topology is the input of a schedule. The order of the nodes matters.
type Topology struct {
	Nodes    []Node
	Clusters []string
}

// Event is one fault.
type Event struct {
	At     time.Duration `json:"at"`  // since the start of the round
	For    time.Duration `json:"for"` // duration
	Kind   string        `json:"kind"`
	Target string        `json:"target,omitempty"` // CLUSTER/NODE, CLUSTER, or empty
	Value  string        `json:"value,omitempty"`
	Track  int           `json:"track"` // events of one track do not overlap
	Locks  []string      `json:"-"`     // targets that no other event uses at the same time
}

const (
	// tracks is the maximum number of concurrent faults.
	tracks = 4
	// A fault lasts from shortest to longest; the mean is about shortest + typical.
	shortest = 200 * time.Millisecond
	typical  = 400 * time.Millisecond
	longest  = 2 * time.Second
	// pause is the longest pause between two faults of a track.
	pause = 200 * time.Millisecond
)

// Round returns the schedule of one round (from 1) with n faults, in the order of their start.
func Round(seed uint64, round, n int, t Topology) []Event {
	r := rand.New(rand.NewPCG(seed, uint64(round)))
	var free [tracks]time.Duration
	var out []Event
	for range n {
		track := 0
		for i := range free {
			if free[i] < free[track] {
				track = i
			}
		}
		at := free[track] + time.Duration(r.Int64N(int64(pause)))
		e, found := draw(r, t, busy(out, at))
		if !found {
			// All targets are locked: wait for the next event to end.
			next := at + longest
			for _, e := range out {
				if end := e.At + e.For; end > at {
					next = min(next, end)
				}
			}
			free[track] = next
			at = free[track]
			e, found = draw(r, t, busy(out, at))
		}
		if !found {
			continue
		}
		e.At, e.Track = at.Round(time.Millisecond), track
		free[track] = e.At + e.For
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Event) int { return int(a.At - b.At) })
	return out
}

// busy returns the locks of the events that run at a time.
func busy(events []Event, at time.Duration) map[string]bool {
	out := map[string]bool{}
	for _, e := range events {
		if e.At+e.For <= at {
			continue
		}
		for _, held := range e.Locks {
			out[held] = true
		}
	}
	return out
}

// draw selects a kind by weight and one of its free targets.
func draw(r *rand.Rand, t Topology, taken map[string]bool) (Event, bool) {
	type choice struct {
		kind    Kind
		targets []target
	}
	var choices []choice
	total := 0
	for _, k := range Kinds() {
		targets := slices.DeleteFunc(k.on(t), func(at target) bool {
			return slices.ContainsFunc(at.locks, func(held string) bool { return taken[held] })
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
		e := Event{Kind: c.kind.Name, Target: at.name, Locks: at.locks, For: min(lasts, longest).Round(time.Millisecond)}
		if len(c.kind.values) > 0 {
			e.Value = c.kind.values[r.IntN(len(c.kind.values))]
		}
		return e, true
	}
	return Event{}, false
}
