package health

import (
	"fmt"
	"time"
)

// Rank says how fit a link is to carry traffic. Both ends rank a link, and the
// lower of the two counts.
type Rank uint8

// The ranks, from the worst to the best.
const (
	Down     Rank = iota // no probe gets through
	Isolated             // it works, but one of its gateways reaches no other node of its cluster
	Draining             // it works, but one of its gateways is to be left, or is not ready yet
	Unsteady             // it works, but fell too often of late
	Good
)

// String gives the name in lower case.
func (r Rank) String() string {
	switch r {
	case Down:
		return "down"
	case Isolated:
		return "alone"
	case Draining:
		return "draining"
	case Unsteady:
		return "unsteady"
	}
	return "good"
}

// ownRank is what the own probes say of the link.
func (t *target) ownRank(now time.Time) Rank {
	switch {
	case !t.live.IsAlive():
		return Down
	case t.damper.isActive(now):
		return Unsteady
	}
	return Good
}

// rank is what counts: the lowest of the own view, the own condition and what
// the other end says.
func (t *target) rank(now time.Time, own condition) Rank {
	if !t.isRemote() {
		return t.ownRank(now)
	}
	return min(t.ownRank(now), own.rank, t.effectiveAdvert().rank)
}

func (t *target) why(now time.Time, own condition) string {
	rank := t.rank(now, own)
	switch {
	case rank == Good:
		return ""
	case t.live == Unproven:
		return "no answer yet"
	case t.live == Dead:
		return "no answer"
	case t.ownRank(now) == rank:
		return t.damper.why()
	case own.rank == rank:
		return own.why
	}
	return "the other end says " + t.effectiveAdvert().rank.String()
}

// A link that fell fallsAllowed times within fallsWithin is held back as
// Unsteady until it was up for holdFor.
const (
	fallsAllowed = 3
	fallsWithin  = time.Minute
	holdFor      = 30 * time.Second
)

// flapDamper remembers the falls of a link.
type flapDamper struct {
	falls [8]time.Time // the last ones, as a ring
	next  int
	held  time.Time // Unsteady until then; zero = never was
	many  int       // falls that led to it
}

func (d *flapDamper) fall(now time.Time) {
	d.falls[d.next%len(d.falls)] = now
	d.next++
	d.hold(now)
}

// hold begins the time anew: after a fall, and when the link comes back.
func (d *flapDamper) hold(now time.Time) {
	if many := d.count(now); many >= fallsAllowed {
		d.held, d.many = now.Add(holdFor), many
	}
}

// count counts the falls of the last minute; more than it remembers do not matter.
func (d *flapDamper) count(now time.Time) int {
	many := 0
	for _, at := range d.falls {
		if !at.IsZero() && now.Sub(at) < fallsWithin {
			many++
		}
	}
	return many
}

func (d *flapDamper) isActive(now time.Time) bool { return now.Before(d.held) }

func (d *flapDamper) why() string {
	return fmt.Sprintf("%d falls in 60 s, held until %s", d.many, d.held.UTC().Format(time.TimeOnly))
}
