package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// The times of the first rounds after a move. The first round may run before the gateway has
// its own route; the second and third repeat it. UDP needs a round each 30 s until the gateway
// has seen a reply. TCP (nf_conntrack accepts it in the middle of a connection) needs one each
// 300 s. After a reply the normal timeouts apply.
var roundTimes = [...]time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second, 50 * time.Second, 75 * time.Second, 100 * time.Second}

// roundInterval is the interval of all later rounds.
const roundInterval = 120 * time.Second

// idleTolerance is the tolerance for a flow without a packet since the move: conntrack counts
// seconds.
const idleTolerance = 2 * time.Second

// checkTimes are the times after a change of a gateway's own link at which its flows are checked.
// The first check is enough, unless a packet in flight then created an entry by the old path,
// or a route was written late.
var checkTimes = [...]time.Duration{0, time.Second, 5 * time.Second}

// pathMove is a cluster whose path moved.
type pathMove struct {
	cluster  string
	prefixes []netip.Prefix
	movedAt  time.Time
	round    int
}

// due returns the time of its next round.
func (m *pathMove) due() time.Time {
	return nextRound(m.movedAt, m.round, roundTimes[:], roundInterval)
}

// nextRound returns the time of a round. The first rounds are at the listed offsets from start.
// Later rounds follow at the given interval.
func nextRound(start time.Time, round int, first []time.Duration, interval time.Duration) time.Time {
	last := len(first) - 1
	return start.Add(first[min(round, last)] + time.Duration(max(round-last, 0))*interval)
}

// needsRefresh reports whether a flow to the cluster needs a refresh packet in this round. In
// the first round, all flows do. Later, only flows without a packet since the move do: the new
// gateway knows the other flows.
func (m *pathMove) needsRefresh(now time.Time, idle time.Duration, known bool) bool {
	return m.round == 0 || !known || idle >= now.Sub(m.movedAt)-idleTolerance
}

// schedule holds the moves that may still need refresh packets, and the pending purges.
type schedule struct {
	moves   map[string]*pathMove
	purges  map[string]*purgeTask
	changes map[string]*linkChange
	routes  newRoutes // whose flows were not checked yet
}

func newSchedule() schedule {
	return schedule{moves: map[string]*pathMove{}, purges: map[string]*purgeTask{}, changes: map[string]*linkChange{}}
}

// moved restarts the rounds of a cluster.
func (s schedule) moved(now time.Time, cluster string, prefixes []netip.Prefix) {
	s.moves[cluster] = &pathMove{cluster: cluster, prefixes: prefixes, movedAt: now}
}

// released records that this gateway no longer forwards a cluster's traffic.
func (s schedule) released(now time.Time, cluster string, prefixes []netip.Prefix) {
	if s.purges[cluster] == nil {
		s.purges[cluster] = &purgeTask{cluster: cluster, prefixes: prefixes, releasedAt: now}
		s.changes[cluster] = &linkChange{cluster: cluster, prefixes: prefixes, changedAt: now}
	}
}

// takenOver records that this gateway now forwards a cluster's traffic.
func (s schedule) takenOver(now time.Time, cluster string, prefixes []netip.Prefix) {
	delete(s.purges, cluster)
	s.changes[cluster] = &linkChange{
		cluster: cluster, prefixes: prefixes, usesOwnLink: true, changedAt: now,
	}
}

// added records that this gateway forwards the traffic of a cluster that had no path before.
func (s schedule) added(now time.Time, cluster string, prefixes []netip.Prefix) {
	s.takenOver(now, cluster, prefixes)
	s.changes[cluster].once = true
}

// linkAvailable records that this gateway has its own link for traffic that other nodes hand
// over.
func (s schedule) linkAvailable(now time.Time, cluster string, prefixes []netip.Prefix) {
	if change := s.changes[cluster]; change == nil || !change.usesOwnLink || !change.isFirst() {
		s.changes[cluster+" from nodes"] = &linkChange{
			cluster: cluster, prefixes: prefixes, usesOwnLink: true, fromNodesOnly: true, changedAt: now,
		}
	}
}

// next returns the time of the next task. It reports false if none is left.
func (s schedule) next() (at time.Time, ok bool) {
	if !s.routes.empty() {
		return time.Time{}, true
	}
	add := func(due time.Time) {
		if !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	for _, m := range s.moves {
		add(m.due())
	}
	for _, purge := range s.purges {
		add(purge.due())
	}
	for _, change := range s.changes {
		add(change.due())
	}
	return at, ok
}

// due returns the moves whose round is due, and the due purges.
func (s schedule) due(now time.Time) (moves []*pathMove, purges []*purgeTask) {
	for _, m := range s.moves {
		if !m.due().After(now) {
			moves = append(moves, m)
		}
	}
	for _, purge := range s.purges {
		if !purge.due().After(now) {
			purges = append(purges, purge)
			purge.round++
		}
	}
	return moves, purges
}

// dueChanges returns the link changes whose flows are due for a check.
func (s schedule) dueChanges(now time.Time) (due []*linkChange) {
	for _, change := range s.changes {
		if !change.due().After(now) {
			due = append(due, change)
		}
	}
	return due
}

// finishCheck counts a pass over the flows of link changes. If the pass found stale entries, the
// flows are checked again at once. A change that a newer one replaced is not counted.
func (s schedule) finishCheck(checked []*linkChange, foundStale bool) {
	for name, change := range s.changes {
		if !slices.Contains(checked, change) {
			continue
		}
		if change.passes++; foundStale && change.passes < maxPasses && !change.fromNodesOnly {
			continue
		}
		change.passes = 0
		if change.checksDone++; change.once || change.checksDone == len(checkTimes) {
			delete(s.changes, name)
		}
	}
}

// finishMoves counts a round, and ends moves without idle flows: active flows need no refresh,
// and new flows start at the new gateway. Moves that were restarted in the meantime are not
// counted.
func (s schedule) finishMoves(now time.Time, done []*pathMove, idleFlows map[string]int, err error) {
	for _, m := range done {
		if s.moves[m.cluster] != m {
			continue
		}
		if err == nil && m.round > 0 && idleFlows[m.cluster] == 0 {
			delete(s.moves, m.cluster)
			continue
		}
		m.round++
		// Missed rounds, for example after a suspend, are skipped.
		for m.due().Before(now) {
			m.round++
		}
	}
}
