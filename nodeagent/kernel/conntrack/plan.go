package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// The first rounds after a move. The first one may come before the gateway has
// its own route; the second and third make up for that. UDP needs one each 30 s,
// while the gateway has seen no answer yet, TCP (nf_conntrack picks it up in the
// middle) one each 300 s. An answered flow is kept as long as any.
var rounds = [...]time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second, 50 * time.Second, 75 * time.Second, 100 * time.Second}

// later is the time between all rounds that follow.
const later = 120 * time.Second

// settle is when a flow counts as quiet since the move: conntrack counts seconds.
const settle = 2 * time.Second

// looks are the times after a turn of a gateway's own link at which its flows are
// looked at. The first one does it all, unless a packet under way made an entry by
// the former way just then, or a route was written late.
var looks = [...]time.Duration{0, time.Second, 5 * time.Second}

// pathMove is a cluster whose path moved.
type pathMove struct {
	cluster  string
	prefixes []netip.Prefix
	at       time.Time
	round    int
}

// due is when its next round is.
func (m *pathMove) due() time.Time { return nextRound(m.at, m.round, rounds[:], later) }

// nextRound is when a round is of what began at a time: the first ones as listed, and then
// each so much later than the one before.
func nextRound(begin time.Time, round int, first []time.Duration, later time.Duration) time.Time {
	last := len(first) - 1
	return begin.Add(first[min(round, last)] + time.Duration(max(round-last, 0))*later)
}

// needsRefresh reports whether a flow to the cluster needs a knock in this round: any
// in the first, later only one that had no packet since the move. A flow that
// had one, in whatever direction, is known to the new gateway.
func (m *pathMove) needsRefresh(now time.Time, idle time.Duration, told bool) bool {
	return m.round == 0 || !told || idle >= now.Sub(m.at)-settle
}

// schedule holds the moves that may still need knocks, and what is to be forgotten.
type schedule struct {
	moves map[string]*pathMove
	left  map[string]*purgeTask
	turns map[string]*linkChange
}

func newPlan() schedule {
	return schedule{moves: map[string]*pathMove{}, left: map[string]*purgeTask{}, turns: map[string]*linkChange{}}
}

// moved starts the rounds of a cluster again.
func (p schedule) moved(now time.Time, cluster string, prefixes []netip.Prefix) {
	p.moves[cluster] = &pathMove{cluster: cluster, prefixes: prefixes, at: now}
}

// gone notes that this gateway carries a cluster's traffic no more.
func (p schedule) gone(now time.Time, cluster string, prefixes []netip.Prefix) {
	if p.left[cluster] == nil {
		p.left[cluster] = &purgeTask{cluster: cluster, prefixes: prefixes, at: now}
		p.turns[cluster] = &linkChange{cluster: cluster, prefixes: prefixes, at: now}
	}
}

// come notes that it carries the traffic now.
func (p schedule) come(now time.Time, cluster string, prefixes []netip.Prefix) {
	delete(p.left, cluster)
	p.turns[cluster] = &linkChange{cluster: cluster, prefixes: prefixes, nowOwn: true, at: now}
}

// transits notes that this gateway's own link is there for what others hand to it.
func (p schedule) transits(now time.Time, cluster string, prefixes []netip.Prefix) {
	if t := p.turns[cluster]; t == nil || !t.nowOwn || !t.isFirst() {
		p.turns[cluster+" transit"] = &linkChange{cluster: cluster, prefixes: prefixes, nowOwn: true, handedOverOnly: true, at: now}
	}
}

// next is when there is something to do; false when nothing is left.
func (p schedule) next() (at time.Time, ok bool) {
	earlier := func(due time.Time) {
		if !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	for _, m := range p.moves {
		earlier(m.due())
	}
	for _, d := range p.left {
		earlier(d.due())
	}
	for _, t := range p.turns {
		earlier(t.due())
	}
	return at, ok
}

// take gives the moves whose round is due, and the departures to forget now.
func (p schedule) take(now time.Time) (moves []*pathMove, left []*purgeTask) {
	for _, m := range p.moves {
		if !m.due().After(now) {
			moves = append(moves, m)
		}
	}
	for _, d := range p.left {
		if !d.due().After(now) {
			left = append(left, d)
			d.round++
		}
	}
	return moves, left
}

// takeTurns gives the turns whose flows are to be looked at.
func (p schedule) takeTurns(now time.Time) (due []*linkChange) {
	for _, t := range p.turns {
		if !t.due().After(now) {
			due = append(due, t)
		}
	}
	return due
}

// turned counts a pass over the flows of turns. After one that found something they
// are looked at again at once. A turn that was followed by another one is over.
func (p schedule) turned(taken []*linkChange, found bool) {
	for name, t := range p.turns {
		if !slices.Contains(taken, t) {
			continue
		}
		if t.passes++; found && t.passes < mostPasses && !t.handedOverOnly {
			continue
		}
		t.passes = 0
		if t.look++; t.look == len(looks) {
			delete(p.turns, name)
		}
	}
}

// finishMoves counts a round, and ends those moves for which no flow was quiet: what is
// not quiet needs no knock any more, and what begins later begins at the new
// gateway. A move that was begun again meanwhile is left alone.
func (p schedule) finishMoves(now time.Time, taken []*pathMove, quiet map[string]int, err error) {
	for _, m := range taken {
		if p.moves[m.cluster] != m {
			continue
		}
		if err == nil && m.round > 0 && quiet[m.cluster] == 0 {
			delete(p.moves, m.cluster)
			continue
		}
		m.round++
		// Rounds that were missed, as in a suspended machine, are not made up for.
		for m.due().Before(now) {
			m.round++
		}
	}
}
