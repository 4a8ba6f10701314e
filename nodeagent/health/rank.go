package health

import (
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
