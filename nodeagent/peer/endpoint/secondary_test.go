package endpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// TestImproves checks that a gateway that replies only while the link is up is probed then. The
// link moves in place or over a secondary tunnel.
func TestImproves(t *testing.T) {
	for _, secondary := range []bool{false, true} {
		t.Run(fmt.Sprintf("secondary %t", secondary), func(t *testing.T) {
			w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, NeedsSecondary: secondary}, nil)
			w.works[outer] = true
			if w.run(time.Minute, w.isUp); !w.alive || w.at != outer {
				t.Fatalf("up %t at %s", w.alive, w.at)
			}
			w.run(10*time.Second, func() bool { return false })
			if have, want := w.m.Reason("b/gw"), "203.0.113.1, number 2 of 2: no reply at 10.99.0.1"; have != want {
				t.Errorf("have %q, want %q", have, want)
			}
			w.replies[inner], w.works[inner] = 10*time.Millisecond, true
			w.run(2*improveInterval, func() bool { return w.at == inner })
			if to := w.m.RemoteEndpoints()["b/gw"]; to.Addr != inner || to.Pending.IsValid() || w.wentDown {
				t.Errorf("dialled at %+v, went down %t", to, w.wentDown)
			}
		})
	}
}

// TestSecondaryWithoutTraffic checks that a secondary tunnel without traffic is given up, and the
// link stays at its candidate.
func TestSecondaryWithoutTraffic(t *testing.T) {
	w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, NeedsSecondary: true}, map[string]netip.AddrPort{"b/gw": outer})
	w.works[outer], w.replies[inner] = true, 10*time.Millisecond
	w.run(5*time.Second, w.isUp)
	dials := w.dials
	tries, tried := 0, false
	w.run(10*time.Minute, func() bool {
		trying := w.m.RemoteEndpoints()["b/gw"].Pending.IsValid()
		if trying && !tried {
			tries++
		}
		tried = trying
		return false
	})
	if tries < 5 || tries > 12 || w.dials != dials || w.at != outer || w.wentDown {
		t.Errorf("tried %d times in 10 minutes, dialled %d times, at %s, went down %t", tries, w.dials-dials, w.at, w.wentDown)
	}
	if working := w.m.Working()["b/gw"]; working != outer {
		t.Errorf("working %s", working)
	}
}

// TestLooksDown checks a link that looks down while its candidate still replies. It stays there for
// minStayTime if a move would interrupt the link.
func TestLooksDown(t *testing.T) {
	r := Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true, NeedsSecondary: true}
	for _, improves := range []bool{false, true} {
		for _, at := range []netip.AddrPort{inner, outer} {
			r.Improves = improves
			w := newSimulation(r, map[string]netip.AddrPort{"b/gw": at})
			w.replies[inner], w.replies[outer] = 20*time.Millisecond, 400*time.Millisecond
			if w.run(minStayTime-time.Second, func() bool { return w.dials > 0 }); w.dials > 0 {
				t.Errorf("improves %t, at %s: dialled %s", improves, at, w.at)
			}
			if took := w.run(minStayTime, func() bool { return w.dials > 0 && w.at != at }); took == minStayTime {
				t.Errorf("improves %t: stays at %s", improves, at)
			}
		}
	}
}

// TestIsDown checks that the link moves to another candidate if the one in use does not reply.
func TestIsDown(t *testing.T) {
	for at, other := range map[netip.AddrPort]netip.AddrPort{inner: outer, outer: inner} {
		w := newSimulation(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}, map[string]netip.AddrPort{"b/gw": at})
		w.works[at], w.replies[at], w.replies[other] = true, 10*time.Millisecond, 10*time.Millisecond
		w.run(2*time.Second, w.isUp)
		delete(w.replies, at)
		w.alive, w.works = false, map[netip.AddrPort]bool{other: true}
		if took := w.run(time.Minute, w.isUp); w.at != other || took > 3*time.Second {
			t.Errorf("at %s after %s", w.at, took)
		}
	}
}

// TestSteps checks that Step is due at most 300 times a minute, with the link down or up at its
// second candidate.
func TestSteps(t *testing.T) {
	for n := range 16 {
		canProbe, secondary, alive, replies := n&1 > 0, n&2 > 0, n&4 > 0, n&8 > 0
		m, now := New(nil), time.Unix(1000, 0)
		m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: canProbe, NeedsSecondary: secondary}}, now)
		steps := 0
		for end := now.Add(time.Minute); now.Before(end); steps++ {
			m.UpdateLink("b/gw", LinkState{Alive: alive, ObservedAddr: outer}, now)
			d := m.Step(now)
			now = d.Next
			for _, p := range d.Probes {
				if replies {
					m.OnReply(p, now)
				}
			}
		}
		if steps > 300 {
			t.Errorf("can probe %t, secondary %t, alive %t, replies %t: %d steps in a minute", canProbe, secondary, alive, replies, steps)
		}
	}
}

// TestLooksDownOnSecondary checks that a link that looks down on the secondary tunnel stays there.
// The first tunnel is not recreated while it exists.
func TestLooksDownOnSecondary(t *testing.T) {
	for _, onSecondary := range []bool{false, true} {
		m, now := New(map[string]netip.AddrPort{"b/gw": outer}), time.Unix(1000, 0)
		m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}}, now)
		run := func(link LinkState, replying ...netip.AddrPort) model.RemoteEndpoint {
			for range 100 {
				m.UpdateLink("b/gw", link, now)
				for _, p := range m.Step(now).Probes {
					if slices.Contains(replying, p.Addr) {
						m.OnReply(p, now)
					}
				}
				now = now.Add(50 * time.Millisecond)
			}
			return m.RemoteEndpoints()["b/gw"]
		}
		if to := run(LinkState{Alive: true}, inner); to != (model.RemoteEndpoint{Addr: outer, Pending: inner}) {
			t.Fatalf("dialled at %+v", to)
		}
		if !onSecondary {
			if to := run(LinkState{}, inner, outer); to != (model.RemoteEndpoint{Addr: outer}) {
				t.Errorf("dialled at %+v before the secondary tunnel had traffic", to)
			}
			continue
		}
		if to := run(LinkState{OnSecondary: true}, inner, outer); to != (model.RemoteEndpoint{Addr: outer, Pending: inner}) {
			t.Errorf("dialled at %+v while the first tunnel exists", to)
		}
		if to := run(LinkState{Alive: true, OnSecondary: true, SecondaryOnly: true}, inner, outer); to != (model.RemoteEndpoint{Addr: inner, DialCount: 1}) {
			t.Errorf("dialled at %+v after the first tunnel is gone", to)
		}
	}
}

// TestSecondaryDies checks that the secondary tunnel is removed if its candidate no longer replies.
func TestSecondaryDies(t *testing.T) {
	m, now := New(map[string]netip.AddrPort{"b/gw": outer}), time.Unix(1000, 0)
	m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true, NeedsSecondary: true}}, now)
	for n, link := range []LinkState{{Alive: true}, {OnSecondary: true}} {
		for range 100 {
			m.UpdateLink("b/gw", link, now)
			for _, p := range m.Step(now).Probes {
				if p.Addr == []netip.AddrPort{inner, outer}[n] {
					m.OnReply(p, now)
				}
			}
			now = now.Add(50 * time.Millisecond)
		}
	}
	if to := m.RemoteEndpoints()["b/gw"]; to.Addr != outer || to.Pending.IsValid() || to.DialCount == 0 {
		t.Errorf("dialled at %+v", to)
	}
}
