package health

import (
	"fmt"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// Rank says how fit a link is to carry traffic. Both ends rank a link, and the
// lower of the two counts.
type Rank uint8

// The ranks, from the worst to the best.
const (
	Down     Rank = iota // no probe gets through
	Alone                // it works, but one of its gateways reaches no other node of its cluster
	Draining             // it works, but one of its gateways is to be left, or is not ready yet
	Unsteady             // it works, but fell too often of late
	Good
)

// String gives the name in lower case.
func (r Rank) String() string {
	switch r {
	case Down:
		return "down"
	case Alone:
		return "alone"
	case Draining:
		return "draining"
	case Unsteady:
		return "unsteady"
	}
	return "good"
}

// view is what the own probes say of the link.
func (t *target) view(now time.Time) Rank {
	switch {
	case !t.alive():
		return Down
	case t.damper.holds(now):
		return Unsteady
	}
	return Good
}

// rank is what counts: the lowest of the own view, the own condition and what
// the other end says.
func (t *target) rank(now time.Time, own condition) Rank {
	if !t.tunnel() {
		return t.view(now)
	}
	return min(t.view(now), own.rank, t.other().rank)
}

func (t *target) why(now time.Time, own condition) string {
	rank := t.rank(now, own)
	switch {
	case rank == Good:
		return ""
	case !t.alive() && t.state == status.Connecting:
		return "no answer yet"
	case !t.alive():
		return "no answer"
	case t.view(now) == rank:
		return t.damper.why()
	case own.rank == rank:
		return own.why
	}
	return "the other end says " + t.other().rank.String()
}

// A link that fell fallsAllowed times within fallsWithin is held back as
// Unsteady until it was up for holdFor.
const (
	fallsAllowed = 3
	fallsWithin  = time.Minute
	holdFor      = 30 * time.Second
)

// damper remembers the falls of a link.
type damper struct {
	falls [8]time.Time // the last ones, as a ring
	next  int
	held  time.Time // Unsteady until then; zero = never was
	many  int       // falls that led to it
}

func (d *damper) fall(now time.Time) {
	d.falls[d.next%len(d.falls)] = now
	d.next++
	d.hold(now)
}

// hold begins the time anew: after a fall, and when the link comes back.
func (d *damper) hold(now time.Time) {
	if many := d.count(now); many >= fallsAllowed {
		d.held, d.many = now.Add(holdFor), many
	}
}

// count counts the falls of the last minute; more than it remembers do not matter.
func (d *damper) count(now time.Time) int {
	many := 0
	for _, at := range d.falls {
		if !at.IsZero() && now.Sub(at) < fallsWithin {
			many++
		}
	}
	return many
}

func (d *damper) holds(now time.Time) bool { return now.Before(d.held) }

func (d *damper) why() string {
	return fmt.Sprintf("%d falls in 60 s, held until %s", d.many, d.held.UTC().Format(time.TimeOnly))
}
