package endpoint

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/model"
)

// selection is the state of one remote gateway.
type selection struct {
	timerqueue.Entry
	Remote
	seen    LinkState
	current model.RemoteEndpoint

	since          time.Time // the link is down or up
	queue          []netip.AddrPort
	asked          map[netip.AddrPort]time.Time
	last           time.Time                    // question
	answers        map[netip.AddrPort]time.Time // of this search
	first          time.Time                    // answer
	badUntil       map[netip.AddrPort]time.Time // until when one is left out
	round          int
	nextUp         time.Time // round
	taken          time.Time // when a candidate was taken on its answer; zero = none, or it proved
	blindAt        time.Time // when the next is tried unasked
	blinds         int
	resolve        bool
	bettered       time.Time // when a better place was taken while the link was up
	secondaryUntil time.Time // when a secondary tunnel that carries nothing is given up
}

// newSelection looks for a gateway that is new. Where it worked last, or where there is
// no choice, the link itself begins at once.
func newSelection(r Remote, kept netip.AddrPort, now time.Time) *selection {
	s := &selection{Remote: r, asked: map[netip.AddrPort]time.Time{}, badUntil: map[netip.AddrPort]time.Time{}}
	switch {
	case s.rank(kept) < len(r.Candidates):
		s.current.Addr = kept
	case len(r.Candidates) == 1 || len(r.Candidates) > 0 && (r.NeedsSecondary || !r.CanProbe):
		s.current.Addr = r.Candidates[0].Addr
	}
	s.onLinkDown(now)
	if s.current.Addr.IsValid() {
		s.nextUp = s.nextUp.Add(followerDelay)
	}
	return s
}

// rank is the place of an address among the candidates; past the last one for any other.
func (s *selection) rank(a netip.AddrPort) int {
	i := slices.IndexFunc(s.Candidates, func(c model.Candidate) bool { return c.Addr == a })
	if i < 0 {
		return len(s.Candidates)
	}
	return i
}

// onLinkDown begins to search, as the link went down.
func (s *selection) onLinkDown(now time.Time) {
	s.since, s.round, s.blinds = now, 0, 0
	s.queue, s.answers, s.taken = nil, map[netip.AddrPort]time.Time{}, time.Time{}
	s.nextUp, s.blindAt = now, now.Add(blindInterval)
	if !s.seen.OnSecondary {
		s.current.Pending = netip.AddrPort{}
	}
	if !s.Improves {
		s.nextUp = now.Add(followerDelay)
	}
	if !s.CanProbe {
		s.blindAt = now.Add(trialPeriod)
	}
}

// onLinkUp ends the search.
func (s *selection) onLinkUp(now time.Time) {
	s.since, s.queue, s.taken = now, nil, time.Time{}
	s.answers = map[netip.AddrPort]time.Time{}
	clear(s.badUntil)
	s.nextUp = now.Add(firstRetry)
	if now.Sub(s.bettered) < 2*retryEvery {
		s.nextUp = now.Add(retryEvery) // perhaps it answers, and carries little
	}
}

// nextWake is when there is something to do.
func (s *selection) nextWake(now time.Time) time.Time {
	at := now.Add(far)
	sooner := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	switch {
	case len(s.Candidates) == 0:
		return at
	case len(s.queue) > 0:
		sooner(s.last.Add(probeSpacing))
	case len(s.answers) > 0 && s.taken.IsZero():
		for _, t := range []time.Time{s.first.Add(s.grace()), s.last.Add(probeSpacing)} {
			if now.Before(t) {
				sooner(t)
			}
		}
	}
	switch {
	case !s.seen.Alive && !s.taken.IsZero():
		sooner(s.taken.Add(s.proof()))
	case !s.seen.Alive:
		sooner(s.blindAt)
		if s.CanProbe {
			sooner(s.nextUp)
		}
	case s.current.Pending.IsValid():
		if s.seen.SecondaryOnly || !s.seen.OnSecondary {
			sooner(s.secondaryUntil)
		}
	case s.canImprove():
		sooner(s.nextUp)
	}
	if at.Before(now.Add(time.Millisecond)) {
		at = now.Add(time.Millisecond)
	}
	return at
}

// canImprove reports whether this end looks for a better place while the link is up.
func (s *selection) canImprove() bool { return s.Improves && s.rank(s.seen.ObservedAddr) > 0 }

// step does what is due; it gives at most one question.
func (s *selection) step(now time.Time) (netip.AddrPort, bool) {
	if len(s.Candidates) == 0 {
		return netip.AddrPort{}, false
	}
	if s.seen.Alive {
		s.improveWhileUp(now)
	} else {
		s.selectWhileDown(now)
	}
	if len(s.queue) == 0 || now.Before(s.last.Add(probeSpacing)) {
		return netip.AddrPort{}, false
	}
	addr := s.queue[0]
	s.queue, s.last, s.asked[addr] = s.queue[1:], now, now
	return addr, true
}

// selectWhileDown takes the best candidate that answered, or goes on asking.
func (s *selection) selectWhileDown(now time.Time) {
	if s.current.Pending.IsValid() {
		s.finishSecondary(now)
	}
	if !s.taken.IsZero() {
		if now.Before(s.taken.Add(s.proof())) {
			return
		}
		s.markBad(now)
	}
	if s.shouldStay(now) {
		s.answers, s.blindAt, s.round = map[netip.AddrPort]time.Time{}, now.Add(blindInterval), 0
	} else if best, ok := s.best(now, len(s.Candidates)); ok {
		s.use(best)
		s.taken = now
		return
	}
	if s.CanProbe && len(s.queue) == 0 && !now.Before(s.nextUp) {
		s.enqueueProbes(now, len(s.Candidates))
		s.nextUp = now.Add(pause(s.round))
		s.round++
		s.resolve = true
	}
	if !now.Before(s.blindAt) {
		s.tryBlind(now)
	}
}

// proof is how long a candidate that was taken may need to carry probes.
func (s *selection) proof() time.Duration {
	if s.NeedsSecondary {
		return minStay
	}
	return trialPeriod
}

// grace is how long a better candidate, or the place in use, may answer later than
// another one.
func (s *selection) grace() time.Duration {
	if s.NeedsSecondary {
		return graceSecondary
	}
	return betterWait
}

// currentAddr is where the link is: that of the secondary tunnel when it carries what is sent.
func (s *selection) currentAddr() netip.AddrPort {
	if s.current.Pending.IsValid() && s.seen.OnSecondary {
		return s.current.Pending
	}
	return s.current.Addr
}

// markBad leaves out the place in use for a while: it answered, and carried nothing.
func (s *selection) markBad(now time.Time) {
	s.badUntil[s.currentAddr()] = now.Add(badTTL)
	s.taken, s.answers, s.nextUp = time.Time{}, map[netip.AddrPort]time.Time{}, now
}

// shouldStay reports whether a link that seems to be down is left where it is.
func (s *selection) shouldStay(now time.Time) bool {
	at := s.currentAddr()
	if _, answers := s.answers[at]; !answers || !s.NeedsSecondary || now.Before(s.badUntil[at]) {
		return false
	}
	if now.Before(s.since.Add(minStay)) {
		return true
	}
	s.markBad(now)
	return false
}

// tryBlind dials candidates in turn although none answered: perhaps only the
// questions, or the answers, get lost.
func (s *selection) tryBlind(now time.Time) {
	i := s.rank(s.currentAddr()) + 1
	if i >= len(s.Candidates) || s.blinds == 0 && !s.current.Addr.IsValid() {
		i = 0
	}
	s.use(s.Candidates[i].Addr)
	wait := blindInterval << min(s.blinds/max(len(s.Candidates), 1), 4)
	s.blinds++
	s.blindAt = now.Add(min(wait, blindMost))
	if !s.CanProbe {
		s.blindAt = now.Add(trialPeriod << min(s.blinds/max(len(s.Candidates), 1), 4))
		s.resolve = true
	}
}

// improveWhileUp asks at better places than the one in use, and takes one that answered.
func (s *selection) improveWhileUp(now time.Time) {
	if s.current.Pending.IsValid() {
		s.finishSecondary(now)
		return
	}
	if !s.canImprove() {
		return
	}
	at := s.rank(s.seen.ObservedAddr)
	if best, ok := s.best(now, at); ok {
		s.answers = map[netip.AddrPort]time.Time{}
		s.nextUp = now.Add(retryEvery)
		if s.NeedsSecondary {
			s.current.Pending, s.secondaryUntil, s.queue = best, now.Add(secondaryTrialPeriod), nil
			return
		}
		s.use(best)
		s.bettered = now
		return
	}
	if len(s.queue) == 0 && !now.Before(s.nextUp) {
		s.answers = map[netip.AddrPort]time.Time{}
		s.enqueueProbes(now, at)
		s.nextUp = now.Add(retryEvery)
	}
}

// finishSecondary ends what a secondary tunnel is for: when all goes over that one, the first is
// made anew at the same place.
func (s *selection) finishSecondary(now time.Time) {
	switch {
	case s.seen.SecondaryOnly:
		s.use(s.current.Pending)
		s.bettered = now
		return
	case s.seen.OnSecondary:
		return // what both ends send over is not given up
	case now.Before(s.secondaryUntil):
		return
	}
	s.current.Pending = netip.AddrPort{}
}

// best gives the most preferred of the first n candidates that answered, once no
// better one can be expected to.
func (s *selection) best(now time.Time, n int) (netip.AddrPort, bool) {
	if len(s.answers) == 0 || now.Before(s.last.Add(probeSpacing)) {
		return netip.AddrPort{}, false
	}
	waits := now.Before(s.first.Add(s.grace()))
	if at := s.currentAddr(); waits && !s.seen.Alive && s.NeedsSecondary && s.rank(at) < n && !now.Before(s.badUntil[at]) {
		return netip.AddrPort{}, false // the place in use may answer yet
	}
	for _, c := range s.Candidates[:n] {
		_, answered := s.answers[c.Addr]
		switch {
		case now.Before(s.badUntil[c.Addr]):
		case answered:
			return c.Addr, true
		case waits:
			return netip.AddrPort{}, false
		}
	}
	return netip.AddrPort{}, false
}

// enqueueProbes puts the first n candidates into the queue, but those that are left out,
// unless that is all of them.
func (s *selection) enqueueProbes(now time.Time, n int) {
	for _, c := range s.Candidates[:n] {
		if !now.Before(s.badUntil[c.Addr]) {
			s.queue = append(s.queue, c.Addr)
		}
	}
	if len(s.queue) == 0 {
		clear(s.badUntil)
	}
}

// use dials a candidate now.
func (s *selection) use(a netip.AddrPort) {
	s.current.Addr, s.current.Pending = a, netip.AddrPort{}
	s.current.DialCount++
	s.queue = nil
}
