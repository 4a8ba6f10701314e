package endpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// TestBetterBeside: a driver that cannot ask while the link is down asks while it is
// up, and goes to a better place in place, or over a secondary tunnel.
func TestBetterBeside(t *testing.T) {
	for _, aside := range []bool{false, true} {
		t.Run(fmt.Sprintf("aside %t", aside), func(t *testing.T) {
			w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, NeedsSecondary: aside}, nil)
			w.works[outer] = true
			if w.run(time.Minute, w.up); !w.alive || w.at != outer {
				t.Fatalf("up %t at %s", w.alive, w.at)
			}
			w.run(10*time.Second, func() bool { return false })
			if have, want := w.m.Why("b/gw"), "203.0.113.1, number 2 of 2: no answer at 10.99.0.1"; have != want {
				t.Errorf("have %q, want %q", have, want)
			}
			w.answers[inner], w.works[inner] = 10*time.Millisecond, true
			w.run(2*retryEvery, func() bool { return w.at == inner })
			if way := w.m.RemoteEndpoints()["b/gw"]; way.Addr != inner || way.Pending.IsValid() || w.fell {
				t.Errorf("goes by %+v, fell %t", way, w.fell)
			}
		})
	}
}

// TestBesideCarriesNothing: a secondary tunnel that carries nothing is given up, and the
// link stays as it is.
func TestBesideCarriesNothing(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, NeedsSecondary: true}, map[string]netip.AddrPort{"b/gw": outer})
	w.works[outer], w.answers[inner] = true, 10*time.Millisecond
	w.run(5*time.Second, w.up)
	dials := w.dial
	tries, tried := 0, false
	w.run(10*time.Minute, func() bool {
		trying := w.m.RemoteEndpoints()["b/gw"].Pending.IsValid()
		if trying && !tried {
			tries++
		}
		tried = trying
		return false
	})
	if tries < 5 || tries > 12 || w.dial != dials || w.at != outer || w.fell {
		t.Errorf("tried %d times in 10 minutes, dialled %d times, at %s, fell %t", tries, w.dial-dials, w.at, w.fell)
	}
	if kept := w.m.Working()["b/gw"]; kept != outer {
		t.Errorf("kept %s", kept)
	}
}

// TestSeemsDown: where a move ends the link, one that seems to be down stays where the
// other end answers, but not for ever.
func TestSeemsDown(t *testing.T) {
	beside := Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true, NeedsSecondary: true}
	for _, leads := range []bool{false, true} {
		for _, at := range []netip.AddrPort{inner, outer} {
			beside.Improves = leads
			w := newWorld(beside, map[string]netip.AddrPort{"b/gw": at})
			w.answers[inner], w.answers[outer] = 20*time.Millisecond, 400*time.Millisecond
			if w.run(minStay-time.Second, func() bool { return w.dial > 0 }); w.dial > 0 {
				t.Errorf("leads %t, at %s: dialled %s", leads, at, w.at)
			}
			if took := w.run(minStay, func() bool { return w.dial > 0 && w.at != at }); took == minStay {
				t.Errorf("leads %t: stays at %s", leads, at)
			}
		}
	}
}

// TestIsDown: a link goes where the other end answers when it does not where the link was.
func TestIsDown(t *testing.T) {
	for at, other := range map[netip.AddrPort]netip.AddrPort{inner: outer, outer: inner} {
		w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}, map[string]netip.AddrPort{"b/gw": at})
		w.works[at], w.answers[at], w.answers[other] = true, 10*time.Millisecond, 10*time.Millisecond
		w.run(2*time.Second, w.up)
		delete(w.answers, at)
		w.alive, w.works = false, map[netip.AddrPort]bool{other: true}
		if took := w.run(time.Minute, w.up); w.at != other || took > 3*time.Second {
			t.Errorf("at %s after %s", w.at, took)
		}
	}
}

// TestSteps: a link that is down, or up at its second place, is looked at no more often
// than there is something to do.
func TestSteps(t *testing.T) {
	for n := range 16 {
		asks, aside, alive, answered := n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0
		m, now := New(nil), time.Unix(1000, 0)
		m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: asks, NeedsSecondary: aside}}, now)
		steps := 0
		for end := now.Add(time.Minute); now.Before(end); steps++ {
			m.UpdateLink("b/gw", LinkState{Alive: alive, ObservedAddr: outer}, now)
			var out []ProbeRequest
			if out, now = m.Step(now); answered {
				for _, a := range out {
					m.OnReply(a, now)
				}
			}
		}
		if steps > 300 {
			t.Errorf("asks %t, aside %t, alive %t, answered %t: %d steps in a minute", asks, aside, alive, answered, steps)
		}
	}
}

// TestFallsAside: a link that seems to fall while it goes over a secondary tunnel is looked
// for where that one is, and the first one is not touched before nobody needs it.
func TestFallsAside(t *testing.T) {
	for _, begun := range []bool{false, true} {
		m, now := New(map[string]netip.AddrPort{"b/gw": outer}), time.Unix(1000, 0)
		m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}}, now)
		pass := func(seen LinkState, answering ...netip.AddrPort) model.RemoteEndpoint {
			for range 100 {
				m.UpdateLink("b/gw", seen, now)
				asks, _ := m.Step(now)
				for _, a := range asks {
					if slices.Contains(answering, a.Addr) {
						m.OnReply(a, now)
					}
				}
				now = now.Add(50 * time.Millisecond)
			}
			return m.RemoteEndpoints()["b/gw"]
		}
		if way := pass(LinkState{Alive: true}, inner); way != (model.RemoteEndpoint{Addr: outer, Pending: inner}) {
			t.Fatalf("goes by %+v", way)
		}
		if !begun {
			if way := pass(LinkState{}, inner, outer); way != (model.RemoteEndpoint{Addr: outer}) {
				t.Errorf("goes by %+v before anything was sent over the secondary tunnel", way)
			}
			continue
		}
		if way := pass(LinkState{OnSecondary: true}, inner, outer); way != (model.RemoteEndpoint{Addr: outer, Pending: inner}) {
			t.Errorf("goes by %+v while the first tunnel is there", way)
		}
		if way := pass(LinkState{Alive: true, OnSecondary: true, SecondaryOnly: true}, inner, outer); way != (model.RemoteEndpoint{Addr: inner, DialCount: 1}) {
			t.Errorf("goes by %+v when the first tunnel is gone", way)
		}
	}
}

// TestDiesAside: the place of the secondary tunnel answers no more.
func TestDiesAside(t *testing.T) {
	m, now := New(map[string]netip.AddrPort{"b/gw": outer}), time.Unix(1000, 0)
	m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}}, now)
	for n, seen := range []LinkState{{Alive: true}, {OnSecondary: true}} {
		for range 100 {
			m.UpdateLink("b/gw", seen, now)
			asks, _ := m.Step(now)
			for _, a := range asks {
				if a.Addr == []netip.AddrPort{inner, outer}[n] {
					m.OnReply(a, now)
				}
			}
			now = now.Add(50 * time.Millisecond)
		}
	}
	if way := m.RemoteEndpoints()["b/gw"]; way.Addr != outer || way.Pending.IsValid() || way.DialCount == 0 {
		t.Errorf("goes by %+v", way)
	}
}
