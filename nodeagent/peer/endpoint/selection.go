package endpoint

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/model"
)

const (
	// probeSpacing separates two probes of one gateway. The kernel accepts one handshake
	// initiation in 20 ms (INITIATIONS_PER_SECOND), and only if its timestamp is newer.
	probeSpacing = 60 * time.Millisecond
	// followerDelay is the lead of the end that improves the link when both ends search.
	followerDelay = 700 * time.Millisecond
	// badTTL is the time for which a candidate is skipped if it replied but the link did not come
	// up.
	badTTL = 20 * time.Second
	// maxBlindInterval limits the time between two candidates that are dialled without a reply.
	maxBlindInterval = time.Minute
	// After a link came up, better candidates are probed after firstImprove, and then at each
	// improveInterval.
	firstImprove    = 3 * time.Second
	improveInterval = time.Minute
	// minStay is the minimum time at a candidate that replies although the link is down, if a
	// move would interrupt it. One of the hosts may be busy.
	minStay = 10 * time.Second
	// secondaryTrial is the time in which a secondary tunnel must have traffic.
	secondaryTrial = 20 * time.Second
)

// timing has the durations that depend on how a gateway is probed and its link is moved.
type timing struct {
	grace time.Duration // how much later than another candidate a preferred one may reply
	trial time.Duration // how long the link may take to come up at a candidate that replied
	blind time.Duration // initial time between two candidates that are dialled without a reply
}

func timingOf(r Remote) timing {
	t := timing{grace: 300 * time.Millisecond, trial: 2 * time.Second, blind: 5 * time.Second}
	if r.NeedsSecondary {
		t.grace, t.trial = 2*time.Second, minStay
	}
	if !r.CanProbe {
		t.blind = 2 * time.Second
	}
	return t
}

// probeInterval returns the time to the next round of probes while the link is down. The
// first rounds come quickly, to find a gateway that moved.
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

	// Probes. A round probes each candidate that may be better than the one in use.
	nextRound  time.Time
	rounds     int              // while the link is down
	queue      []netip.AddrPort // rest of the current round
	lastProbe  time.Time
	probed     map[netip.AddrPort]bool
	replied    map[netip.AddrPort]bool // since the link went down or up; while it is up, in this round
	firstReply time.Time
	badUntil   map[netip.AddrPort]time.Time // skipped candidates

	// While the link is down.
	downSince time.Time
	trialEnd  time.Time // of the candidate that was dialled after its reply; zero = none
	nextBlind time.Time // when the next candidate is dialled without a reply
	blinds    int

	// While the link is up.
	improvedAt   time.Time // when the link moved to a better candidate
	secondaryEnd time.Time // when a secondary tunnel without traffic is given up
}

// newSelection returns the state of a new gateway. It dials the candidate that worked in the
// previous agent. Otherwise it dials the first one, if there is no other or gateways cannot be
// probed without an interruption.
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

// onLinkDown starts a search.
func (s *selection) onLinkDown(now time.Time) {
	s.downSince, s.nextRound, s.rounds = now, now, 0
	s.trialEnd, s.nextBlind, s.blinds = time.Time{}, now.Add(s.blind), 0
	s.queue = nil
	s.forgetReplies()
	if !s.Improves {
		s.nextRound = now.Add(followerDelay)
	}
	if !s.link.OnSecondary {
		s.endpoint.Pending = netip.AddrPort{}
	}
}

// onLinkUp ends the search.
func (s *selection) onLinkUp(now time.Time) {
	s.downSince, s.trialEnd, s.nextBlind = time.Time{}, time.Time{}, time.Time{}
	s.queue = nil
	s.forgetReplies()
	clear(s.badUntil)
	s.nextRound = now.Add(firstImprove)
	if now.Sub(s.improvedAt) < 2*improveInterval {
		s.nextRound = now.Add(improveInterval) // the better candidate may reply but lose traffic
	}
}

func (s *selection) onReply(a netip.AddrPort, now time.Time) {
	if len(s.replied) == 0 {
		s.firstReply = now
	}
	s.replied[a] = true
}

func (s *selection) forgetReplies() { s.replied, s.firstReply = map[netip.AddrPort]bool{}, time.Time{} }

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
	if len(s.queue) == 0 || now.Before(s.lastProbe.Add(probeSpacing)) {
		return netip.AddrPort{}, false
	}
	probe, s.queue = s.queue[0], s.queue[1:]
	s.lastProbe, s.probed[probe] = now, true
	return probe, true
}

// nextStep returns the earliest deadline after now.
func (s *selection) nextStep(now time.Time) time.Time {
	next := now.Add(noDeadline)
	for _, t := range []time.Time{
		s.nextRound, s.lastProbe.Add(probeSpacing), s.firstReply.Add(s.grace), s.trialEnd, s.nextBlind, s.secondaryEnd,
	} {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	return next
}

// search dials the best candidate that replied while the link is down. If none replies, it dials
// one after the other: perhaps only probes or their replies are lost.
func (s *selection) search(now time.Time) {
	s.finishSecondary(now)
	if now.Before(s.trialEnd) {
		return
	}
	if !s.trialEnd.IsZero() {
		s.markBad(now)
	}
	if s.shouldStay(now) {
		s.forgetReplies()
		s.rounds, s.nextBlind = 0, now.Add(s.blind)
	} else if best, ok := s.best(now, s.Candidates); ok {
		s.dial(best)
		s.trialEnd = now.Add(s.trial)
		return
	}
	if s.CanProbe && len(s.queue) == 0 && !now.Before(s.nextRound) {
		s.startRound(s.Candidates, now)
		s.nextRound = now.Add(probeInterval(s.rounds))
		s.rounds++
		s.resolve = true
	}
	if !now.Before(s.nextBlind) {
		s.dialNext(now)
	}
}

// improve moves a link that is up to a better candidate that replies.
func (s *selection) improve(now time.Time) {
	if s.endpoint.Pending.IsValid() {
		s.finishSecondary(now)
		return
	}
	better := s.Candidates[:s.rank(s.link.ObservedAddr)]
	if !s.Improves || len(better) == 0 {
		return
	}
	if best, ok := s.best(now, better); ok {
		s.forgetReplies()
		s.nextRound = now.Add(improveInterval)
		if s.NeedsSecondary {
			s.endpoint.Pending, s.secondaryEnd, s.queue = best, now.Add(secondaryTrial), nil
			return
		}
		s.dial(best)
		s.improvedAt = now
		return
	}
	if len(s.queue) == 0 && !now.Before(s.nextRound) {
		s.forgetReplies()
		s.startRound(better, now)
		s.nextRound = now.Add(improveInterval)
	}
}

// startRound queues candidates to be probed, except bad ones. If all are bad, the next round probes
// them again.
func (s *selection) startRound(candidates []model.Candidate, now time.Time) {
	for _, c := range candidates {
		if !s.isBad(c.Addr, now) {
			s.queue = append(s.queue, c.Addr)
		}
	}
	if len(s.queue) == 0 {
		clear(s.badUntil)
	}
}

// best returns the first of some candidates that replied. ok is false while a better one may still
// reply.
func (s *selection) best(now time.Time, candidates []model.Candidate) (addr netip.AddrPort, ok bool) {
	if len(s.replied) == 0 || now.Before(s.lastProbe.Add(probeSpacing)) {
		return netip.AddrPort{}, false // the kernel would not accept the tunnel's own handshake yet
	}
	waiting := now.Before(s.firstReply.Add(s.grace))
	if at := s.currentAddr(); waiting && !s.link.Alive && s.NeedsSecondary && s.isCandidate(at) && !s.isBad(at, now) {
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

// shouldStay reports whether to keep the candidate in use although the link looks down: it
// still replies, and a move would interrupt the link.
func (s *selection) shouldStay(now time.Time) bool {
	at := s.currentAddr()
	if !s.NeedsSecondary || !s.replied[at] || s.isBad(at, now) {
		return false
	}
	if now.Before(s.downSince.Add(minStay)) {
		return true
	}
	s.markBad(now)
	return false
}

// markBad marks the candidate in use as bad: it replied, but the link did not come up.
func (s *selection) markBad(now time.Time) {
	s.badUntil[s.currentAddr()] = now.Add(badTTL)
	s.trialEnd, s.nextRound = time.Time{}, now
	s.forgetReplies()
}

func (s *selection) isBad(a netip.AddrPort, now time.Time) bool { return now.Before(s.badUntil[a]) }

// dialNext dials the candidate after the one in use.
func (s *selection) dialNext(now time.Time) {
	n := len(s.Candidates)
	i := s.rank(s.currentAddr()) + 1
	if i >= n {
		i = 0
	}
	s.dial(s.Candidates[i].Addr)
	s.nextBlind = now.Add(min(s.blind<<min(s.blinds/n, 4), maxBlindInterval))
	s.blinds++
	s.resolve = true
}

// dial makes a candidate the one in use.
func (s *selection) dial(a netip.AddrPort) {
	s.endpoint.Addr, s.endpoint.Pending = a, netip.AddrPort{}
	s.endpoint.DialCount++
	s.queue = nil
}

// finishSecondary ends the detour over a secondary tunnel. If no other tunnel is left, the
// first one is recreated at the new candidate. If the secondary tunnel never had
// traffic, it is given up after secondaryTrial.
func (s *selection) finishSecondary(now time.Time) {
	switch {
	case !s.endpoint.Pending.IsValid():
	case s.link.SecondaryOnly:
		s.dial(s.endpoint.Pending)
		s.improvedAt = now
	case s.link.OnSecondary: // both ends send over it
	case !now.Before(s.secondaryEnd):
		s.endpoint.Pending = netip.AddrPort{}
	}
}

// currentAddr returns the candidate of the link.
func (s *selection) currentAddr() netip.AddrPort {
	if s.usesSecondary() {
		return s.endpoint.Pending
	}
	return s.endpoint.Addr
}

func (s *selection) usesSecondary() bool { return s.endpoint.Pending.IsValid() && s.link.OnSecondary }

// rank returns the index of an address among the candidates, or their number if it is no candidate.
func (s *selection) rank(a netip.AddrPort) int {
	i := slices.IndexFunc(s.Candidates, func(c model.Candidate) bool { return c.Addr == a })
	if i < 0 {
		return len(s.Candidates)
	}
	return i
}

func (s *selection) isCandidate(a netip.AddrPort) bool { return s.rank(a) < len(s.Candidates) }
