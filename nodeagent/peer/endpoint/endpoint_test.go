package endpoint

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

var (
	inner = netip.MustParseAddrPort("10.99.0.1:51820")
	outer = netip.MustParseAddrPort("203.0.113.1:6000")
	third = netip.MustParseAddrPort("198.51.100.1:51820")
	away  = netip.MustParseAddrPort("192.0.2.1:31000")
)

func candidates(addrs ...netip.AddrPort) []model.Candidate {
	var out []model.Candidate
	for _, a := range addrs {
		out = append(out, model.Candidate{Text: a.Addr().String(), Addr: a})
	}
	return out
}

// world is a network in which a machine searches for one gateway.
type world struct {
	m       *Selector
	now     time.Time
	answers map[netip.AddrPort]time.Duration // who answers, and how soon
	works   map[netip.AddrPort]bool          // where the link comes up, 50 ms after it was dialled
	coming  []event
	at      netip.AddrPort
	alive   bool
	asked   map[netip.AddrPort]int
	dial    int
	begun   time.Time // a secondary tunnel carries what is sent; zero = none does
	fell    bool      // the link was lost after it was up
}

type event struct {
	at time.Time
	do func()
}

func newWorld(r Remote, kept map[string]netip.AddrPort) *world {
	w := &world{
		m: New(kept), now: time.Unix(1000, 0), answers: map[netip.AddrPort]time.Duration{},
		works: map[netip.AddrPort]bool{}, asked: map[netip.AddrPort]int{},
	}
	w.m.Set([]Remote{r}, w.now)
	return w
}

// run lets time pass until done, or until the limit; it gives how long it took.
func (w *world) run(limit time.Duration, done func() bool) time.Duration {
	began := w.now
	for w.now.Sub(began) < limit {
		begun := !w.begun.IsZero()
		w.m.UpdateLink("b/gw", LinkState{Alive: w.alive, ObservedAddr: w.at, OnSecondary: begun, SecondaryOnly: begun && w.now.Sub(w.begun) > 5*time.Second}, w.now)
		asks, next := w.m.Step(w.now)
		for _, a := range asks {
			w.asked[a.Addr]++
			if after, answers := w.answers[a.Addr]; answers {
				w.coming = append(w.coming, event{w.now.Add(after), func() { w.m.OnReply(a, w.now) }})
			}
		}
		w.dialled()
		if done() {
			return w.now.Sub(began)
		}
		w.now = w.pass(next)
	}
	return limit
}

// pass carries out what comes until the next step, and gives when that is.
func (w *world) pass(next time.Time) time.Time {
	next = w.now.Add(max(min(next.Sub(w.now), 10*time.Millisecond), time.Millisecond))
	var later []event
	for _, e := range w.coming {
		if e.at.After(next) {
			later = append(later, e)
			continue
		}
		e.do()
	}
	w.coming = later
	return next
}

// dialled has the link follow what the machine decided.
func (w *world) dialled() {
	way := w.m.RemoteEndpoints()["b/gw"]
	switch {
	case !w.works[way.Pending]:
		w.begun = time.Time{}
	case w.begun.IsZero():
		w.begun = w.now
	}
	if way.DialCount == w.dial && w.at.IsValid() || !way.Addr.IsValid() {
		return
	}
	w.dial, w.at = way.DialCount, way.Addr
	w.coming = append(w.coming, event{w.now.Add(50 * time.Millisecond), func() { w.fell, w.alive = w.alive && !w.works[w.at], w.works[w.at] }})
}

func (w *world) up() bool { return w.alive }

func TestFirstLeadsNowhere(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.answers[outer], w.works[outer] = 40*time.Millisecond, true
	w.run(200*time.Millisecond, w.up)
	if have, want := w.m.Why("b/gw"), "looking: no answer at 10.99.0.1, an answer from 203.0.113.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if took := w.run(10*time.Second, w.up); took > 800*time.Millisecond {
		t.Errorf("up after %s more", took)
	}
	if have, want := w.m.Why("b/gw"), "203.0.113.1, number 2 of 2: no answer at 10.99.0.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

func TestPreferredWins(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.answers[inner], w.works[inner] = 200*time.Millisecond, true
	w.answers[outer], w.works[outer] = 10*time.Millisecond, true
	w.run(5*time.Second, w.up)
	if w.at != inner {
		t.Errorf("at %s, want %s", w.at, inner)
	}
}

// TestBetterLater: a preferred candidate that begins to answer is taken, and until
// then the link is left alone.
func TestBetterLater(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.answers[outer], w.works[outer] = 10*time.Millisecond, true
	w.run(5*time.Second, w.up)
	dials := w.dial
	w.run(5*time.Minute, func() bool { return false })
	if w.dial != dials || w.at != outer {
		t.Errorf("dialled %d times more, at %s", w.dial-dials, w.at)
	}
	if n := w.asked[outer]; n > 2 {
		t.Errorf("asked %d times where it is", n)
	}
	if n := w.asked[inner]; n < 4 || n > 8 {
		t.Errorf("asked %d times where it was not, in 5 minutes", n)
	}
	w.answers[inner], w.works[inner] = 10*time.Millisecond, true
	if took := w.run(5*time.Minute, func() bool { return w.at == inner }); took > retryEvery+time.Second {
		t.Errorf("moved after %s", took)
	}
}

// TestFollowerStays: the end that does not lead takes what the other chose.
func TestFollowerStays(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true}, nil)
	for _, a := range []netip.AddrPort{inner, outer} {
		w.answers[a], w.works[a] = 10*time.Millisecond, true
	}
	w.run(300*time.Millisecond, func() bool { return false })
	if len(w.asked) > 0 {
		t.Errorf("asked %v before the other end had its time", w.asked)
	}
	w.alive, w.at = true, outer
	w.run(5*time.Minute, func() bool { return false })
	if w.dial > 0 || len(w.asked) > 0 {
		t.Errorf("dialled %d times, asked %v", w.dial, w.asked)
	}
	w.alive = false
	delete(w.works, outer)
	if took := w.run(10*time.Second, w.up); took > 1500*time.Millisecond || w.at != inner {
		t.Errorf("up again after %s at %s", took, w.at)
	}
}

func TestDialsIn(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), CanProbe: true}, nil)
	w.alive, w.at = true, away
	w.run(time.Second, func() bool { return false })
	if have, want := w.m.Why("b/gw"), "it dialled in; not asked yet at 10.99.0.1, not asked yet at 203.0.113.1"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if kept := w.m.Working(); len(kept) > 0 {
		t.Errorf("kept %v", kept)
	}
}

// TestMoves: a name stands for another address; the link is up again within 2 s of its end.
func TestMoves(t *testing.T) {
	r := Remote{Name: "b/gw", Candidates: candidates(inner), Improves: true, CanProbe: true}
	w := newWorld(r, nil)
	w.works[inner] = true
	if took := w.run(5*time.Second, w.up); took > 200*time.Millisecond {
		t.Errorf("the only one is dialled after %s", took)
	}
	w.alive = false
	delete(w.works, inner)
	w.works[third], w.answers[third] = true, 30*time.Millisecond
	w.run(time.Second, w.m.ConsumeResolveRequest)
	r.Candidates = candidates(third)
	w.m.Set([]Remote{r}, w.now)
	if took := w.run(10*time.Second, w.up); took > time.Second {
		t.Errorf("up again after %s", took)
	}
}

// TestAnswersButCarriesNothing: such a candidate is left for the next one.
func TestAnswersButCarriesNothing(t *testing.T) {
	w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}, nil)
	w.answers[inner], w.answers[outer], w.works[outer] = 10*time.Millisecond, 10*time.Millisecond, true
	if took := w.run(20*time.Second, w.up); took > 4*time.Second {
		t.Errorf("up after %s", took)
	}
}

// TestNobodyAnswers: candidates are tried all the same, ever less often.
func TestNobodyAnswers(t *testing.T) {
	for _, asks := range []bool{true, false} {
		t.Run(fmt.Sprintf("asks %t", asks), func(t *testing.T) {
			w := newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer, third), Improves: true, CanProbe: asks}, nil)
			w.works[third] = true
			w.run(time.Minute, w.up)
			if !w.alive {
				t.Fatal("the third was never tried")
			}
			w = newWorld(Remote{Name: "b/gw", Candidates: candidates(inner, outer, third), Improves: true, CanProbe: asks}, nil)
			w.run(time.Hour, func() bool { return false })
			if w.dial > 150 || w.asked[inner] > 600 {
				t.Errorf("dialled %d times and asked %d times in an hour", w.dial, w.asked[inner])
			}
		})
	}
}

func TestKept(t *testing.T) {
	r := Remote{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}
	w := newWorld(r, map[string]netip.AddrPort{"b/gw": outer})
	w.works[outer] = true
	if took := w.run(5*time.Second, w.up); took > 200*time.Millisecond {
		t.Errorf("where it was last is dialled after %s", took)
	}
	if kept := w.m.Working()["b/gw"]; kept != outer {
		t.Errorf("kept %s", kept)
	}
	w = newWorld(r, map[string]netip.AddrPort{"b/gw": away})
	if way := w.m.RemoteEndpoints()["b/gw"]; way.Addr.IsValid() {
		t.Errorf("a place that is no candidate any more is dialled: %v", way)
	}
}

// TestUpWithoutPlace: a link that comes back while it is not known from where its packets
// come is where it was tried, and not where it was before.
func TestUpWithoutPlace(t *testing.T) {
	t.Parallel()
	m, now := New(nil), time.Unix(1000, 0)
	m.Set([]Remote{{Name: "b/gw", Candidates: candidates(inner, outer), Improves: true, CanProbe: true}}, now)
	m.UpdateLink("b/gw", LinkState{Alive: true, ObservedAddr: inner}, now)
	m.UpdateLink("b/gw", LinkState{}, now)
	for m.RemoteEndpoints()["b/gw"].Addr != outer {
		if now = now.Add(100 * time.Millisecond); now.After(time.Unix(1010, 0)) {
			t.Fatalf("not at the place that answers: %s", m.Why("b/gw"))
		}
		asks, _ := m.Step(now)
		for _, a := range asks {
			if a.Addr == outer {
				m.OnReply(a, now)
			}
		}
	}
	m.UpdateLink("b/gw", LinkState{Alive: true}, now)
	if have := m.RemoteEndpoints()["b/gw"].Addr; have != outer {
		t.Errorf("the link is tried at %s again", have)
	}
	if have, want := m.Why("b/gw"), "203.0.113.1, number 2 of 2: no answer at 10.99.0.1"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}
