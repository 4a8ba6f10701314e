package endpoint

import (
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/internal/due"
	"hawser.dev/hawser/nodeagent/model"
)

// search is the state of one remote gateway.
type search struct {
	due.Slot
	Remote
	seen Seen
	at   model.RemoteEndpoint

	since          time.Time // the link is down or up
	queue          []netip.AddrPort
	asked          map[netip.AddrPort]time.Time
	last           time.Time                    // question
	answers        map[netip.AddrPort]time.Time // of this search
	first          time.Time                    // answer
	bad            map[netip.AddrPort]time.Time // until when one is left out
	round          int
	nextUp         time.Time // round
	taken          time.Time // when a candidate was taken on its answer; zero = none, or it proved
	blindAt        time.Time // when the next is tried unasked
	blinds         int
	resolve        bool
	bettered       time.Time // when a better place was taken while the link was up
	secondaryUntil time.Time // when a secondary tunnel that carries nothing is given up
}

// begin looks for a gateway that is new. Where it worked last, or where there is
// no choice, the link itself begins at once.
func begin(r Remote, kept netip.AddrPort, now time.Time) *search {
	s := &search{Remote: r, asked: map[netip.AddrPort]time.Time{}, bad: map[netip.AddrPort]time.Time{}}
	switch {
	case s.rank(kept) < len(r.Candidates):
		s.at.Addr = kept
	case len(r.Candidates) == 1 || len(r.Candidates) > 0 && (r.Secondary || !r.Asks):
		s.at.Addr = r.Candidates[0].Addr
	}
	s.start(now)
	if s.at.Addr.IsValid() {
		s.nextUp = s.nextUp.Add(yield)
	}
	return s
}

// rank is the place of an address among the candidates; past the last one for any other.
func (s *search) rank(a netip.AddrPort) int {
	i := slices.IndexFunc(s.Candidates, func(c model.Candidate) bool { return c.Addr == a })
	if i < 0 {
		return len(s.Candidates)
	}
	return i
}

// start begins to search, as the link went down.
func (s *search) start(now time.Time) {
	s.since, s.round, s.blinds = now, 0, 0
	s.queue, s.answers, s.taken = nil, map[netip.AddrPort]time.Time{}, time.Time{}
	s.nextUp, s.blindAt = now, now.Add(blind)
	if !s.seen.Begun {
		s.at.Next = netip.AddrPort{}
	}
	if !s.Leads {
		s.nextUp = now.Add(yield)
	}
	if !s.Asks {
		s.blindAt = now.Add(proof)
	}
}

// live ends the search.
func (s *search) live(now time.Time) {
	s.since, s.queue, s.taken = now, nil, time.Time{}
	s.answers = map[netip.AddrPort]time.Time{}
	clear(s.bad)
	s.nextUp = now.Add(firstRetry)
	if now.Sub(s.bettered) < 2*retryEvery {
		s.nextUp = now.Add(retryEvery) // perhaps it answers, and carries little
	}
}

// wake is when there is something to do.
func (s *search) wake(now time.Time) time.Time {
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
		sooner(s.last.Add(stagger))
	case len(s.answers) > 0 && s.taken.IsZero():
		for _, t := range []time.Time{s.first.Add(s.grace()), s.last.Add(stagger)} {
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
		if s.Asks {
			sooner(s.nextUp)
		}
	case s.at.Next.IsValid():
		if s.seen.Alone || !s.seen.Begun {
			sooner(s.secondaryUntil)
		}
	case s.improves():
		sooner(s.nextUp)
	}
	if at.Before(now.Add(time.Millisecond)) {
		at = now.Add(time.Millisecond)
	}
	return at
}

// improves reports whether this end looks for a better place while the link is up.
func (s *search) improves() bool { return s.Leads && s.rank(s.seen.At) > 0 }

// step does what is due; it gives at most one question.
func (s *search) step(now time.Time) (netip.AddrPort, bool) {
	if len(s.Candidates) == 0 {
		return netip.AddrPort{}, false
	}
	if s.seen.Alive {
		s.better(now)
	} else {
		s.find(now)
	}
	if len(s.queue) == 0 || now.Before(s.last.Add(stagger)) {
		return netip.AddrPort{}, false
	}
	addr := s.queue[0]
	s.queue, s.last, s.asked[addr] = s.queue[1:], now, now
	return addr, true
}

// find takes the best candidate that answered, or goes on asking.
func (s *search) find(now time.Time) {
	if s.at.Next.IsValid() {
		s.goOver(now)
	}
	if !s.taken.IsZero() {
		if now.Before(s.taken.Add(s.proof())) {
			return
		}
		s.spoil(now)
	}
	if s.stays(now) {
		s.answers, s.blindAt, s.round = map[netip.AddrPort]time.Time{}, now.Add(blind), 0
	} else if best, ok := s.best(now, len(s.Candidates)); ok {
		s.take(best)
		s.taken = now
		return
	}
	if s.Asks && len(s.queue) == 0 && !now.Before(s.nextUp) {
		s.ask(now, len(s.Candidates))
		s.nextUp = now.Add(pause(s.round))
		s.round++
		s.resolve = true
	}
	if !now.Before(s.blindAt) {
		s.try(now)
	}
}

// proof is how long a candidate that was taken may need to carry probes.
func (s *search) proof() time.Duration {
	if s.Secondary {
		return steady
	}
	return proof
}

// grace is how long a better candidate, or the place in use, may answer later than
// another one.
func (s *search) grace() time.Duration {
	if s.Secondary {
		return graceSecondary
	}
	return grace
}

// place is where the link is: that of the secondary tunnel when it carries what is sent.
func (s *search) place() netip.AddrPort {
	if s.at.Next.IsValid() && s.seen.Begun {
		return s.at.Next
	}
	return s.at.Addr
}

// spoil leaves out the place in use for a while: it answered, and carried nothing.
func (s *search) spoil(now time.Time) {
	s.bad[s.place()] = now.Add(spoiled)
	s.taken, s.answers, s.nextUp = time.Time{}, map[netip.AddrPort]time.Time{}, now
}

// stays reports whether a link that seems to be down is left where it is.
func (s *search) stays(now time.Time) bool {
	at := s.place()
	if _, answers := s.answers[at]; !answers || !s.Secondary || now.Before(s.bad[at]) {
		return false
	}
	if now.Before(s.since.Add(steady)) {
		return true
	}
	s.spoil(now)
	return false
}

// try dials candidates in turn although none answered: perhaps only the
// questions, or the answers, get lost.
func (s *search) try(now time.Time) {
	i := s.rank(s.place()) + 1
	if i >= len(s.Candidates) || s.blinds == 0 && !s.at.Addr.IsValid() {
		i = 0
	}
	s.take(s.Candidates[i].Addr)
	wait := blind << min(s.blinds/max(len(s.Candidates), 1), 4)
	s.blinds++
	s.blindAt = now.Add(min(wait, blindMost))
	if !s.Asks {
		s.blindAt = now.Add(proof << min(s.blinds/max(len(s.Candidates), 1), 4))
		s.resolve = true
	}
}

// better asks at better places than the one in use, and takes one that answered.
func (s *search) better(now time.Time) {
	if s.at.Next.IsValid() {
		s.goOver(now)
		return
	}
	if !s.improves() {
		return
	}
	at := s.rank(s.seen.At)
	if best, ok := s.best(now, at); ok {
		s.answers = map[netip.AddrPort]time.Time{}
		s.nextUp = now.Add(retryEvery)
		if s.Secondary {
			s.at.Next, s.secondaryUntil, s.queue = best, now.Add(secondaryProof), nil
			return
		}
		s.take(best)
		s.bettered = now
		return
	}
	if len(s.queue) == 0 && !now.Before(s.nextUp) {
		s.answers = map[netip.AddrPort]time.Time{}
		s.ask(now, at)
		s.nextUp = now.Add(retryEvery)
	}
}

// goOver ends what a secondary tunnel is for: when all goes over that one, the first is
// made anew at the same place.
func (s *search) goOver(now time.Time) {
	switch {
	case s.seen.Alone:
		s.take(s.at.Next)
		s.bettered = now
		return
	case s.seen.Begun:
		return // what both ends send over is not given up
	case now.Before(s.secondaryUntil):
		return
	}
	s.at.Next = netip.AddrPort{}
}

// best gives the most preferred of the first n candidates that answered, once no
// better one can be expected to.
func (s *search) best(now time.Time, n int) (netip.AddrPort, bool) {
	if len(s.answers) == 0 || now.Before(s.last.Add(stagger)) {
		return netip.AddrPort{}, false
	}
	waits := now.Before(s.first.Add(s.grace()))
	if at := s.place(); waits && !s.seen.Alive && s.Secondary && s.rank(at) < n && !now.Before(s.bad[at]) {
		return netip.AddrPort{}, false // the place in use may answer yet
	}
	for _, c := range s.Candidates[:n] {
		_, answered := s.answers[c.Addr]
		switch {
		case now.Before(s.bad[c.Addr]):
		case answered:
			return c.Addr, true
		case waits:
			return netip.AddrPort{}, false
		}
	}
	return netip.AddrPort{}, false
}

// ask puts the first n candidates into the queue, but those that are left out,
// unless that is all of them.
func (s *search) ask(now time.Time, n int) {
	for _, c := range s.Candidates[:n] {
		if !now.Before(s.bad[c.Addr]) {
			s.queue = append(s.queue, c.Addr)
		}
	}
	if len(s.queue) == 0 {
		clear(s.bad)
	}
}

// take dials a candidate now.
func (s *search) take(a netip.AddrPort) {
	s.at.Addr, s.at.Next = a, netip.AddrPort{}
	s.at.Dial++
	s.queue = nil
}
