package endpoint

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

var (
	inner     = netip.MustParseAddrPort("10.99.0.1:51820")
	outer     = netip.MustParseAddrPort("203.0.113.1:6000")
	third     = netip.MustParseAddrPort("198.51.100.1:51820")
	otherPort = netip.MustParseAddrPort("192.0.2.1:31000")
)

func candidates(addrs ...netip.AddrPort) []model.Candidate {
	var out []model.Candidate
	for _, a := range addrs {
		out = append(out, model.Candidate{Text: a.Addr().String(), Addr: a})
	}
	return out
}

// simulation is a network with one remote gateway.
type simulation struct {
	m       *Selector
	now     time.Time
	replies map[netip.AddrPort]time.Duration // delay of the reply, by candidate that replies
	works   map[netip.AddrPort]bool          // candidates where the link comes up 50 ms after the dial
	coming  []event
	at      netip.AddrPort // candidate where the link is
	alive   bool
	probes  map[netip.AddrPort]int
	dials   int
	resolve bool
	// secondarySince is the time when the secondary tunnel first had traffic; zero = no tunnel.
	secondarySince time.Time
	wentDown       bool // the link went down after it was up
}

type event struct {
	at time.Time
	do func()
}

func newSimulation(r Remote, saved map[string]netip.AddrPort) *simulation {
	w := &simulation{
		m: New(saved), now: time.Unix(1000, 0), replies: map[netip.AddrPort]time.Duration{},
		works: map[netip.AddrPort]bool{}, probes: map[netip.AddrPort]int{},
	}
	w.m.Set([]Remote{r}, w.now)
	return w
}

// run advances the time until done or the limit. It returns the elapsed time.
func (s *simulation) run(limit time.Duration, done func() bool) time.Duration {
	start := s.now
	for s.now.Sub(start) < limit {
		secondary := !s.secondarySince.IsZero()
		s.m.UpdateLink("b/gw", LinkState{Alive: s.alive, ObservedAddr: s.at, OnSecondary: secondary, SecondaryOnly: secondary && s.now.Sub(s.secondarySince) > 5*time.Second}, s.now)
		d := s.m.Step(s.now)
		s.resolve = d.Resolve
		for _, p := range d.Probes {
			s.probes[p.Addr]++
			if after, replies := s.replies[p.Addr]; replies {
				s.coming = append(s.coming, event{s.now.Add(after), func() { s.m.OnReply(p, s.now) }})
			}
		}
		s.apply()
		if done() {
			return s.now.Sub(start)
		}
		s.now = s.step(d.Next)
	}
	return limit
}

// step runs the events before the next step, and returns its time.
func (s *simulation) step(next time.Time) time.Time {
	next = s.now.Add(max(min(next.Sub(s.now), 10*time.Millisecond), time.Millisecond))
	var later []event
	for _, e := range s.coming {
		if e.at.After(next) {
			later = append(later, e)
			continue
		}
		e.do()
	}
	s.coming = later
	return next
}

// apply moves the link to the candidate that the Selector dials.
func (s *simulation) apply() {
	to := s.m.RemoteEndpoints()["b/gw"]
	switch {
	case !s.works[to.Pending]:
		s.secondarySince = time.Time{}
	case s.secondarySince.IsZero():
		s.secondarySince = s.now
	}
	if to.DialCount == s.dials && s.at.IsValid() || !to.Addr.IsValid() {
		return
	}
	s.dials, s.at = to.DialCount, to.Addr
	s.coming = append(s.coming, event{s.now.Add(50 * time.Millisecond), func() { s.wentDown, s.alive = s.alive && !s.works[s.at], s.works[s.at] }})
}

func (s *simulation) isUp() bool { return s.alive }

// TestFirstDead checks that the second candidate is in use less than a second after the start.
func TestFirstDead(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.replies[outer], w.works[outer] = 40*time.Millisecond, true
	w.run(200*time.Millisecond, w.isUp)
	if have, want := w.m.Reason("b/gw"), "searching: no reply at 10.99.0.1, a reply from 203.0.113.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if took := w.run(10*time.Second, w.isUp); took > 800*time.Millisecond {
		t.Errorf("up after %s more", took)
	}
	if have, want := w.m.Reason("b/gw"), "203.0.113.1, number 2 of 2: no reply at 10.99.0.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

// TestPreferredWins checks that the first candidate wins although the second one replies earlier.
func TestPreferredWins(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.replies[inner], w.works[inner] = 200*time.Millisecond, true
	w.replies[outer], w.works[outer] = 10*time.Millisecond, true
	w.run(5*time.Second, w.isUp)
	if w.at != inner {
		t.Errorf("at %s, want %s", w.at, inner)
	}
}

// TestBetterLater checks that the link moves to a preferred candidate once that replies, and stays
// unchanged before.
func TestBetterLater(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.replies[outer], w.works[outer] = 10*time.Millisecond, true
	w.run(5*time.Second, w.isUp)
	dials := w.dials
	w.run(5*time.Minute, func() bool { return false })
	if w.dials != dials || w.at != outer {
		t.Errorf("dialled %d more times, at %s", w.dials-dials, w.at)
	}
	if n := w.probes[outer]; n > 2 {
		t.Errorf("the candidate in use was probed %d times", n)
	}
	if n := w.probes[inner]; n < 4 || n > 8 {
		t.Errorf("the better candidate was probed %d times in 5 minutes", n)
	}
	w.replies[inner], w.works[inner] = 10*time.Millisecond, true
	if took := w.run(5*time.Minute, func() bool { return w.at == inner }); took > improveInterval+time.Second {
		t.Errorf("moved after %s", took)
	}
}

// TestFollowerStays checks that the end that does not improve the link stays where the peer moved
// it.
func TestFollowerStays(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true}, nil)
	for _, a := range []netip.AddrPort{inner, outer} {
		w.replies[a], w.works[a] = 10*time.Millisecond, true
	}
	w.run(300*time.Millisecond, func() bool { return false })
	if len(w.probes) > 0 {
		t.Errorf("probed %v within followerDelay", w.probes)
	}
	w.alive, w.at = true, outer
	w.run(5*time.Minute, func() bool { return false })
	if w.dials > 0 || len(w.probes) > 0 {
		t.Errorf("dialled %d times, probed %v", w.dials, w.probes)
	}
	w.alive = false
	delete(w.works, outer)
	if took := w.run(10*time.Second, w.isUp); took > 1500*time.Millisecond || w.at != inner {
		t.Errorf("up again after %s at %s", took, w.at)
	}
}

// TestDialsIn checks that a peer that dials in from another address is not dialled.
func TestDialsIn(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true}, nil)
	w.alive, w.at = true, otherPort
	w.run(time.Second, func() bool { return false })
	if have, want := w.m.Reason("b/gw"), "the peer dialled in; not probed yet at 10.99.0.1, not probed yet at 203.0.113.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if working := w.m.Working(); len(working) > 0 {
		t.Errorf("working %v", working)
	}
}

// TestNameMoves checks that a link is up again within 2 s after a name resolves to another address.
func TestNameMoves(t *testing.T) {
	r := Remote{Name: "b/gw", Candidates: candidates(inner), Improves: true, CanProbe: true}
	w := newSimulation(r, nil)
	w.works[inner] = true
	if took := w.run(5*time.Second, w.isUp); took > 200*time.Millisecond {
		t.Errorf("the only candidate came up after %s", took)
	}
	w.alive = false
	delete(w.works, inner)
	w.works[third], w.replies[third] = true, 30*time.Millisecond
	w.run(time.Second, func() bool { return w.resolve })
	r.Candidates = candidates(third)
	w.m.Set([]Remote{r}, w.now)
	if took := w.run(10*time.Second, w.isUp); took > time.Second {
		t.Errorf("up again after %s", took)
	}
}

// TestReplyWithoutLink checks that the next candidate is dialled if one replies but its link stays
// down.
func TestReplyWithoutLink(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.replies[inner], w.replies[outer], w.works[outer] = 10*time.Millisecond, 10*time.Millisecond, true
	if took := w.run(20*time.Second, w.isUp); took > 4*time.Second {
		t.Errorf("up after %s", took)
	}
}

// TestNoReplies checks that candidates without a reply are dialled at growing intervals.
func TestNoReplies(t *testing.T) {
	for _, canProbe := range []bool{true, false} {
		t.Run(fmt.Sprintf("can probe %t", canProbe), func(t *testing.T) {
			w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer, third), Improves: true, CanProbe: canProbe}, nil)
			w.works[third] = true
			w.run(time.Minute, w.isUp)
			if !w.alive {
				t.Fatal("the third candidate was never dialled")
			}
			w = newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer, third), Improves: true, CanProbe: canProbe}, nil)
			w.run(time.Hour, func() bool { return false })
			if w.dials > 150 || w.probes[inner] > 600 {
				t.Errorf("dialled %d times and probed %d times in an hour", w.dials, w.probes[inner])
			}
		})
	}
}

// TestSaved checks that the candidate that worked in the previous agent is dialled at once.
func TestSaved(t *testing.T) {
	r := Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}
	w := newSimulation(r, map[string]netip.AddrPort{"b/gw": outer})
	w.works[outer] = true
	if took := w.run(5*time.Second, w.isUp); took > 200*time.Millisecond {
		t.Errorf("the saved candidate came up after %s", took)
	}
	if working := w.m.Working()["b/gw"]; working != outer {
		t.Errorf("working %s", working)
	}
	w = newSimulation(r, map[string]netip.AddrPort{"b/gw": otherPort})
	if to := w.m.RemoteEndpoints()["b/gw"]; to.Addr.IsValid() {
		t.Errorf("an address that is no candidate is dialled: %v", to)
	}
}

// TestUpWithoutObservedAddr checks a link that comes up while the peer's address is unknown. It is
// at the dialled candidate, not at the previous one.
func TestUpWithoutObservedAddr(t *testing.T) {
	t.Parallel()
	m, now := New(nil), time.Unix(1000, 0)
	m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}}, now)
	m.UpdateLink("b/gw", LinkState{Alive: true, ObservedAddr: inner}, now)
	m.UpdateLink("b/gw", LinkState{}, now)
	for m.RemoteEndpoints()["b/gw"].Addr != outer {
		if now = now.Add(100 * time.Millisecond); now.After(time.Unix(1010, 0)) {
			t.Fatalf("not dialled where it replies: %s", m.Reason("b/gw"))
		}
		for _, p := range m.Step(now).Probes {
			if p.Addr == outer {
				m.OnReply(p, now)
			}
		}
	}
	m.UpdateLink("b/gw", LinkState{Alive: true}, now)
	if have := m.RemoteEndpoints()["b/gw"].Addr; have != outer {
		t.Errorf("dialled at %s again", have)
	}
	if have, want := m.Reason("b/gw"), "203.0.113.1, number 2 of 2: no reply at 10.99.0.1"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}
