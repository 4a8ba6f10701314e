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
		return "isolated"
	case Draining:
		return "draining"
	case Unsteady:
		return "unsteady"
	}
	return "good"
}

// localRank returns the rank of the link from its probes alone.
func (t *target) localRank(now time.Time) Rank {
	switch {
	case !t.liveness.IsAlive():
		return Down
	case t.damper.isActive(now):
		return Unsteady
	}
	return Good
}

// rank returns the lowest rank of the link's probes, this gateway and the peer.
func (t *target) rank(now time.Time, gateway condition) Rank {
	if !t.isRemote() {
		return t.localRank(now)
	}
	return min(t.localRank(now), gateway.rank, t.effectiveAdvert().rank)
}

func (t *target) reason(now time.Time, gateway condition) string {
	rank := t.rank(now, gateway)
	switch {
	case rank == Good:
		return ""
	case t.liveness == Unproven:
		return "no reply yet"
	case t.liveness == Dead:
		return "no reply"
	case t.localRank(now) == rank:
		return t.damper.reason()
	case gateway.rank == rank:
		return gateway.reason
	}
	return "the peer reports " + t.effectiveAdvert().rank.String()
}

// A link that failed flapsAllowed times within flapWindow is Unsteady until it has been up for
// holdTime.
const (
	flapsAllowed = 3
	flapWindow   = time.Minute
	holdTime     = 30 * time.Second
)

// flapDamper counts the failures of a link.
type flapDamper struct {
	failures  [8]time.Time // ring of the last failures
	next      int
	heldUntil time.Time // Unsteady until then; zero = never
	heldFlaps int       // failures within flapWindow when held was set
}

func (d *flapDamper) onFailure(now time.Time) {
	d.failures[d.next%len(d.failures)] = now
	d.next++
	d.restartHold(now)
}

// restartHold restarts the hold time if the link failed too often.
func (d *flapDamper) restartHold(now time.Time) {
	if n := d.recentFailures(now); n >= flapsAllowed {
		d.heldUntil, d.heldFlaps = now.Add(holdTime), n
	}
}

// recent returns the number of failures within flapWindow, up to the size of the ring.
func (d *flapDamper) recentFailures(now time.Time) int {
	n := 0
	for _, at := range d.failures {
		if !at.IsZero() && now.Sub(at) < flapWindow {
			n++
		}
	}
	return n
}

func (d *flapDamper) isActive(now time.Time) bool { return now.Before(d.heldUntil) }

func (d *flapDamper) reason() string {
	return fmt.Sprintf("%d flaps in 60 s, held until %s", d.heldFlaps, d.heldUntil.UTC().Format(time.TimeOnly))
}
