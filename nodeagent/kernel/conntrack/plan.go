package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// The times of the first rounds after a move. The first round may come before the gateway has
// its own route; the second and third repeat it. UDP needs one each 30 s until the gateway has
// seen a reply. TCP (nf_conntrack picks it up in the middle) needs one each 300 s. After a
// reply the normal timeouts apply.
var rounds = [...]time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second, 50 * time.Second, 75 * time.Second, 100 * time.Second}

// later is the interval of all later rounds.
const later = 120 * time.Second

// settle is the tolerance for a flow without a packet since the move: conntrack counts seconds.
const settle = 2 * time.Second

// checkTimes are the times after a change of a gateway's own link at which its flows are checked.
// The first check is enough, unless a packet in flight then created an entry by the old path,
// or a route was written late.
var checkTimes = [...]time.Duration{0, time.Second, 5 * time.Second}

// pathMove is a cluster whose path moved.
type pathMove struct {
	cluster  string
	prefixes []netip.Prefix
	at       time.Time
	round    int
}

// due returns the time of its next round.
func (m *pathMove) due() time.Time { return nextRound(m.at, m.round, rounds[:], later) }

// nextRound returns the time of a round. The first rounds are at the listed offsets from begin,
// and the others follow at intervals of later.
func nextRound(begin time.Time, round int, first []time.Duration, later time.Duration) time.Time {
	last := len(first) - 1
	return begin.Add(first[min(round, last)] + time.Duration(max(round-last, 0))*later)
}

// needsRefresh reports whether a flow to the cluster needs a refresh packet in this round. In
// the first round, all flows do. Later, only flows without a packet since the move do: the new
// gateway knows the others.
func (m *pathMove) needsRefresh(now time.Time, idle time.Duration, told bool) bool {
	return m.round == 0 || !told || idle >= now.Sub(m.at)-settle
}

// schedule holds the moves that may still need refresh packets, and the pending purges.
type schedule struct {
	moves map[string]*pathMove
	left  map[string]*purgeTask
	turns map[string]*linkChange
}

func newPlan() schedule {
	return schedule{moves: map[string]*pathMove{}, left: map[string]*purgeTask{}, turns: map[string]*linkChange{}}
}

// moved restarts the rounds of a cluster.
func (p schedule) moved(now time.Time, cluster string, prefixes []netip.Prefix) {
	p.moves[cluster] = &pathMove{cluster: cluster, prefixes: prefixes, at: now}
}

// released records that this gateway no longer carries a cluster's traffic.
func (p schedule) released(now time.Time, cluster string, prefixes []netip.Prefix) {
	if p.left[cluster] == nil {
		p.left[cluster] = &purgeTask{cluster: cluster, prefixes: prefixes, at: now}
		p.turns[cluster] = &linkChange{cluster: cluster, prefixes: prefixes, at: now}
	}
}

// takenOver records that this gateway now carries a cluster's traffic.
func (p schedule) takenOver(now time.Time, cluster string, prefixes []netip.Prefix) {
	delete(p.left, cluster)
	p.turns[cluster] = &linkChange{cluster: cluster, prefixes: prefixes, nowOwn: true, at: now}
}

// transits records that this gateway has its own link for traffic that other nodes hand over.
func (p schedule) transits(now time.Time, cluster string, prefixes []netip.Prefix) {
	if t := p.turns[cluster]; t == nil || !t.nowOwn || !t.isFirst() {
		p.turns[cluster+" transit"] = &linkChange{cluster: cluster, prefixes: prefixes, nowOwn: true, handedOverOnly: true, at: now}
	}
}

// next returns the time of the next task. It reports false if none is left.
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

// due returns the moves whose round is due, and the due purges.
func (p schedule) due(now time.Time) (moves []*pathMove, left []*purgeTask) {
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

// dueChanges returns the link changes whose flows are due for a check.
func (p schedule) dueChanges(now time.Time) (due []*linkChange) {
	for _, t := range p.turns {
		if !t.due().After(now) {
			due = append(due, t)
		}
	}
	return due
}

// checked counts a pass over the flows of link changes. If the pass found stale entries, the
// flows are checked again at once. A change that a newer one replaced is not counted.
func (p schedule) checked(taken []*linkChange, found bool) {
	for name, t := range p.turns {
		if !slices.Contains(taken, t) {
			continue
		}
		if t.passes++; found && t.passes < maxPasses && !t.handedOverOnly {
			continue
		}
		t.passes = 0
		if t.look++; t.look == len(checkTimes) {
			delete(p.turns, name)
		}
	}
}

// finishMoves counts a round, and ends moves without idle flows: active flows need no refresh,
// and new flows start at the new gateway. Moves that were restarted in the meantime are not
// counted.
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
		// Missed rounds, as after a suspend, are skipped.
		for m.due().Before(now) {
			m.round++
		}
	}
}
