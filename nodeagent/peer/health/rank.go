package health

import (
	"fmt"
	"time"
)

// Rank is the health of a link. Both ends rank a link; the lower rank counts.
type Rank uint8

// Ranks, from worst to best.
const (
	Down     Rank = iota // probes get no reply
	Isolated             // alive; a gateway reaches no other node of its cluster
	Draining             // alive; a gateway drains or is not ready
	Unsteady             // alive; failed too often recently
	Good
)

// String returns the name in lower case.
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

// ownRank returns the rank of the link by its own probes.
func (t *target) ownRank(now time.Time) Rank {
	switch {
	case !t.live.IsAlive():
		return Down
	case t.damper.isActive(now):
		return Unsteady
	}
	return Good
}

// rank returns the lowest of three ranks: by own probes, of this gateway, and of the peer.
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
		return "no reply yet"
	case t.live == Dead:
		return "no reply"
	case t.ownRank(now) == rank:
		return t.damper.why()
	case own.rank == rank:
		return own.why
	}
	return "the peer reports " + t.effectiveAdvert().rank.String()
}

// A link that failed flapsAllowed times within flapWindow is Unsteady until it was up for holdTime.
const (
	flapsAllowed = 3
	flapWindow   = time.Minute
	holdTime     = 30 * time.Second
)

// flapDamper counts the failures of a link.
type flapDamper struct {
	failures [8]time.Time // ring of the last failures
	next     int
	held     time.Time // Unsteady until then; zero = never
	count    int       // failures within flapWindow when held was set
}

func (d *flapDamper) onFailure(now time.Time) {
	d.failures[d.next%len(d.failures)] = now
	d.next++
	d.restartHold(now)
}

// restartHold restarts the hold time, after a failure and when the link returns.
func (d *flapDamper) restartHold(now time.Time) {
	if n := d.recent(now); n >= flapsAllowed {
		d.held, d.count = now.Add(holdTime), n
	}
}

// recent returns the number of failures within flapWindow, up to the size of the ring.
func (d *flapDamper) recent(now time.Time) int {
	n := 0
	for _, at := range d.failures {
		if !at.IsZero() && now.Sub(at) < flapWindow {
			n++
		}
	}
	return n
}

func (d *flapDamper) isActive(now time.Time) bool { return now.Before(d.held) }

func (d *flapDamper) why() string {
	return fmt.Sprintf("%d flaps in 60 s, held until %s", d.count, d.held.UTC().Format(time.TimeOnly))
}
