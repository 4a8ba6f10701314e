package endpoint

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/model"
)

const (
	// probeSpacing is the minimum time between two probes of one gateway. The kernel accepts
	// one handshake initiation in 20 ms (INITIATIONS_PER_SECOND), and only if its timestamp is
	// newer.
	probeSpacing = 60 * time.Millisecond
	// followerDelay is how much later the end that does not improve the link starts a search.
	followerDelay = 700 * time.Millisecond
	// badCandidateTime is the time for which a candidate is skipped after it replied but the
	// link did not come up.
	badCandidateTime = 20 * time.Second
	// maxBlindInterval limits the time between two dials without a reply.
	maxBlindInterval = time.Minute
	// After a link came up, better candidates are probed after firstImproveDelay, and then
	// after each improveInterval.
	firstImproveDelay = 3 * time.Second
	improveInterval   = time.Minute
	// minStayTime is the minimum time at a candidate that replies although the link is down, if
	// a move would interrupt the link. One of the hosts may be busy.
	minStayTime = 10 * time.Second
	// secondaryTimeout is the time in which a secondary tunnel must have traffic.
	secondaryTimeout = 20 * time.Second
)

// timing has the durations that depend on the properties of a Remote.
type timing struct {
	preferenceDelay time.Duration // wait for a preferred candidate after another one replied
	trialTime       time.Duration // limit for the link to come up after a candidate replied
	blindInterval   time.Duration // initial time between two dials without a reply
}

func timingOf(r Remote) timing {
	t := timing{
		preferenceDelay: 300 * time.Millisecond,
		trialTime:       2 * time.Second,
		blindInterval:   5 * time.Second,
	}
	if r.NeedsSecondary {
		t.preferenceDelay, t.trialTime = 2*time.Second, minStayTime
	}
	if !r.CanProbe {
		t.blindInterval = 2 * time.Second
	}
	return t
}

// probeInterval returns the time to the next round of probes while the link is down. The first
// rounds follow quickly, to find a gateway that moved.
func probeInterval(rounds int) time.Duration {
	switch {
	case rounds < 10:
		return 500 * time.Millisecond
	case rounds < 30:
		return 2 * time.Second
	}
	return 8 * time.Second
}

// selection is the state of one remote gateway.
type selection struct {
	timerqueue.Entry
	Remote
	timing
	link      LinkState
	endpoint  model.RemoteEndpoint
	published model.RemoteEndpoint // endpoint at the end of the previous step
	resolve   bool                 // see Decision

	// A round probes all candidates while the link is down, and better candidates while it is
	// up.
	nextRound     time.Time
	rounds        int              // while the link is down
	pendingProbes []netip.AddrPort // rest of the current round
	lastProbeAt   time.Time
	probed        map[netip.AddrPort]bool
	replied       map[netip.AddrPort]bool // since the link went down; in this round if up
	firstReplyAt  time.Time
	badUntil      map[netip.AddrPort]time.Time // skipped candidates

	// While the link is down.
	downSince     time.Time
	trialDeadline time.Time // of a candidate that was dialled after its reply; zero = none
	nextBlind     time.Time // when the next candidate is dialled without a reply
	blindDials    int

	// While the link is up.
	improvedAt        time.Time // when the link moved to a better candidate
	secondaryDeadline time.Time // when a secondary tunnel without traffic is abandoned
}

// newSelection returns the state of a new gateway. It dials the candidate that worked in the
// previous agent. Otherwise it dials the first candidate, if it is the only one, or if the peer
// cannot be probed, or if a move interrupts the link.
func newSelection(r Remote, saved netip.AddrPort, now time.Time) *selection {
	s := &selection{Remote: r, timing: timingOf(r), probed: map[netip.AddrPort]bool{}, badUntil: map[netip.AddrPort]time.Time{}}
	switch {
	case s.isCandidate(saved):
		s.endpoint.Addr = saved
	case len(r.Candidates) == 1 || len(r.Candidates) > 0 && (r.NeedsSecondary || !r.CanProbe):
		s.endpoint.Addr = r.Candidates[0].Addr
	}
	s.onLinkDown(now)
	if s.endpoint.Addr.IsValid() {
		s.nextRound = s.nextRound.Add(followerDelay)
	}
	return s
}

// update sets the candidates and the properties of the gateway.
func (s *selection) update(r Remote, now time.Time) {
	changed := !slices.Equal(s.Candidates, r.Candidates)
	s.Remote, s.timing = r, timingOf(r)
	if changed && !s.link.Alive {
		s.onLinkDown(now)
	}
	if !s.isCandidate(s.endpoint.Pending) {
		s.endpoint.Pending = netip.AddrPort{}
	}
}

// updateLink sets the observed state of the link.
func (s *selection) updateLink(link LinkState, now time.Time) {
	roams := s.CanProbe && !s.NeedsSecondary // WireGuard follows the peer's packets
	switch {
	case link.ObservedAddr.IsValid():
	case roams && s.link.Alive:
		link.ObservedAddr = s.link.ObservedAddr
	default:
		link.ObservedAddr = s.endpoint.Addr // the link came up at the dialled candidate
	}
	before := s.link
	s.link = link
	switch {
	case link.Alive && !before.Alive:
		s.onLinkUp(now)
	case !link.Alive && before.Alive:
		s.resolve = true
		s.onLinkDown(now)
	}
	if link.Alive && roams && s.isCandidate(link.ObservedAddr) {
		s.endpoint.Addr = link.ObservedAddr
	}
}

// onLinkDown starts to search for a candidate that works.
func (s *selection) onLinkDown(now time.Time) {
	s.downSince, s.nextRound, s.rounds = now, now, 0
	s.trialDeadline, s.nextBlind, s.blindDials = time.Time{}, now.Add(s.blindInterval), 0
	s.pendingProbes = nil
	s.clearReplies()
	if !s.Improves {
		s.nextRound = now.Add(followerDelay)
	}
	if !s.link.OnSecondary {
		s.endpoint.Pending = netip.AddrPort{}
	}
}

// onLinkUp ends the search and plans probes of better candidates.
func (s *selection) onLinkUp(now time.Time) {
	s.downSince, s.trialDeadline, s.nextBlind = time.Time{}, time.Time{}, time.Time{}
	s.pendingProbes = nil
	s.clearReplies()
	clear(s.badUntil)
	s.nextRound = now.Add(firstImproveDelay)
	if now.Sub(s.improvedAt) < 2*improveInterval {
		// The better candidate may reply although it loses traffic.
		s.nextRound = now.Add(improveInterval)
	}
}

func (s *selection) onReply(a netip.AddrPort, now time.Time) {
	if len(s.replied) == 0 {
		s.firstReplyAt = now
	}
	s.replied[a] = true
}

func (s *selection) clearReplies() {
	s.replied, s.firstReplyAt = map[netip.AddrPort]bool{}, time.Time{}
}

// step handles all expired deadlines. It returns at most one address to probe.
func (s *selection) step(now time.Time) (probe netip.AddrPort, ok bool) {
	switch {
	case len(s.Candidates) == 0:
		return netip.AddrPort{}, false
	case s.link.Alive:
		s.improve(now)
	default:
		s.search(now)
	}
	if len(s.pendingProbes) == 0 || now.Before(s.lastProbeAt.Add(probeSpacing)) {
		return netip.AddrPort{}, false
	}
	probe, s.pendingProbes = s.pendingProbes[0], s.pendingProbes[1:]
	s.lastProbeAt, s.probed[probe] = now, true
	return probe, true
}

// nextStep returns the earliest deadline after now.
func (s *selection) nextStep(now time.Time) time.Time {
	next := now.Add(noDeadline)
	for _, t := range []time.Time{
		s.nextRound, s.lastProbeAt.Add(probeSpacing), s.firstReplyAt.Add(s.preferenceDelay), s.trialDeadline, s.nextBlind, s.secondaryDeadline,
	} {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	return next
}

// search dials the best candidate that replied, while the link is down. If no candidate replies, it
// dials one after the other: only probes or their replies may be lost.
func (s *selection) search(now time.Time) {
	s.finishSecondary(now)
	if now.Before(s.trialDeadline) {
		return
	}
	if !s.trialDeadline.IsZero() {
		s.markBad(now)
	}
	if s.shouldStay(now) {
		s.clearReplies()
		s.rounds, s.nextBlind = 0, now.Add(s.blindInterval)
	} else if best, ok := s.best(now, s.Candidates); ok {
		s.dial(best)
		s.trialDeadline = now.Add(s.trialTime)
		return
	}
	if s.CanProbe && len(s.pendingProbes) == 0 && !now.Before(s.nextRound) {
		s.startRound(s.Candidates, now)
		s.nextRound = now.Add(probeInterval(s.rounds))
		s.rounds++
		s.resolve = true
	}
	if !now.Before(s.nextBlind) {
		s.dialNext(now)
	}
}

// improve moves a link that is up to a better candidate after its reply.
func (s *selection) improve(now time.Time) {
	if s.endpoint.Pending.IsValid() {
		s.finishSecondary(now)
		return
	}
	better := s.Candidates[:s.candidateIndex(s.link.ObservedAddr)]
	if !s.Improves || len(better) == 0 {
		return
	}
	if best, ok := s.best(now, better); ok {
		s.clearReplies()
		s.nextRound = now.Add(improveInterval)
		if s.NeedsSecondary {
			s.endpoint.Pending, s.secondaryDeadline, s.pendingProbes = best, now.Add(secondaryTimeout), nil
			return
		}
		s.dial(best)
		s.improvedAt = now
		return
	}
	if len(s.pendingProbes) == 0 && !now.Before(s.nextRound) {
		s.clearReplies()
		s.startRound(better, now)
		s.nextRound = now.Add(improveInterval)
	}
}

// startRound queues candidates to be probed, except bad ones. If all candidates are bad, the next
// round probes all of them.
func (s *selection) startRound(candidates []model.Candidate, now time.Time) {
	for _, c := range candidates {
		if !s.isBad(c.Addr, now) {
			s.pendingProbes = append(s.pendingProbes, c.Addr)
		}
	}
	if len(s.pendingProbes) == 0 {
		clear(s.badUntil)
	}
}

// best returns the first candidate that replied. ok is false while a better candidate may still
// reply.
func (s *selection) best(now time.Time, candidates []model.Candidate) (addr netip.AddrPort, ok bool) {
	if len(s.replied) == 0 || now.Before(s.lastProbeAt.Add(probeSpacing)) {
		return netip.AddrPort{}, false // the peer would not accept the handshake of the tunnel yet
	}
	waiting := now.Before(s.firstReplyAt.Add(s.preferenceDelay))
	if current := s.currentAddr(); waiting && !s.link.Alive && s.NeedsSecondary && s.isCandidate(current) && !s.isBad(current, now) {
		return netip.AddrPort{}, false // the candidate in use may still reply
	}
	for _, c := range candidates {
		switch {
		case s.isBad(c.Addr, now):
		case s.replied[c.Addr]:
			return c.Addr, true
		case waiting:
			return netip.AddrPort{}, false
		}
	}
	return netip.AddrPort{}, false
}

// shouldStay reports whether to keep the candidate in use although the link looks down. The
// candidate still replies, and a move would interrupt the link.
func (s *selection) shouldStay(now time.Time) bool {
	current := s.currentAddr()
	if !s.NeedsSecondary || !s.replied[current] || s.isBad(current, now) {
		return false
	}
	if now.Before(s.downSince.Add(minStayTime)) {
		return true
	}
	s.markBad(now)
	return false
}

// markBad marks the candidate in use as bad: it replied, but the link did not come up.
func (s *selection) markBad(now time.Time) {
	s.badUntil[s.currentAddr()] = now.Add(badCandidateTime)
	s.trialDeadline, s.nextRound = time.Time{}, now
	s.clearReplies()
}

func (s *selection) isBad(a netip.AddrPort, now time.Time) bool { return now.Before(s.badUntil[a]) }

// dialNext dials the candidate after the one in use.
func (s *selection) dialNext(now time.Time) {
	n := len(s.Candidates)
	i := s.candidateIndex(s.currentAddr()) + 1
	if i >= n {
		i = 0
	}
	s.dial(s.Candidates[i].Addr)
	s.nextBlind = now.Add(min(s.blindInterval<<min(s.blindDials/n, 4), maxBlindInterval))
	s.blindDials++
	s.resolve = true
}

// dial sets the candidate in use.
func (s *selection) dial(a netip.AddrPort) {
	s.endpoint.Addr, s.endpoint.Pending = a, netip.AddrPort{}
	s.endpoint.DialCount++
	s.pendingProbes = nil
}

// finishSecondary ends the use of a secondary tunnel. If only the secondary tunnel is left, the
// first tunnel is recreated at the new candidate. If the secondary tunnel has no traffic, it is
// abandoned after secondaryTimeout.
func (s *selection) finishSecondary(now time.Time) {
	switch {
	case !s.endpoint.Pending.IsValid():
	case s.link.SecondaryOnly:
		s.dial(s.endpoint.Pending)
		s.improvedAt = now
	case s.link.OnSecondary: // both ends send over it
	case !now.Before(s.secondaryDeadline):
		s.endpoint.Pending = netip.AddrPort{}
	}
}

// currentAddr returns the candidate in use.
func (s *selection) currentAddr() netip.AddrPort {
	if s.usesSecondary() {
		return s.endpoint.Pending
	}
	return s.endpoint.Addr
}

func (s *selection) usesSecondary() bool { return s.endpoint.Pending.IsValid() && s.link.OnSecondary }

// rank returns the index of an address among the candidates. It returns their number if the
// address is not a candidate.
func (s *selection) candidateIndex(a netip.AddrPort) int {
	i := slices.IndexFunc(s.Candidates, func(c model.Candidate) bool { return c.Addr == a })
	if i < 0 {
		return len(s.Candidates)
	}
	return i
}

func (s *selection) isCandidate(a netip.AddrPort) bool {
	return s.candidateIndex(a) < len(s.Candidates)
}
