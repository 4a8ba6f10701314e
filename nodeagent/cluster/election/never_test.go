package election

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// world is a cluster of agents with clocks of their own, whose Leases are in one API.
type world struct {
	*rand.Rand
	t      testing.TB
	now    time.Duration // true time
	leases map[string]Lease
	past   []past // of leases, for watches that are late
	agents []*agent
	flying []flight
	opens  int
	turns  map[string]bool
	calm   bool // nothing is lost
}

type past struct {
	at     time.Duration
	leases map[string]Lease
}

// flight is a write on its way to the API.
type flight struct {
	at    time.Duration
	lease Lease
	by    *agent
	asked int // the agent hears of it while this is its question
}

// agent is one node. It is frozen, or away from the API, for random times; between any two
// of its steps it may stand still.
type agent struct {
	name    string
	rate    float64 // of its clock
	offset  time.Duration
	state   State
	wakes   time.Duration
	asleep  time.Duration // frozen until
	cut     time.Duration // away from the API until
	seen    time.Duration // how fresh its view is
	away    bool
	asked   int
	began   time.Time // of the write under way; zero = none
	expires time.Time
	lease   Lease
	answer  *Lease // what came of it, not yet looked at
	refused *Lease
	toOpen  *time.Time // it is about to open its guard
	gateway string     // that its guard is of
	until   time.Time  // when that closes
}

func (w *world) clock(a *agent) time.Time {
	return start.Add(a.offset + time.Duration(float64(w.now)*a.rate))
}

func (w *world) view(a *agent) ClusterView {
	v := ClusterView{Node: a.name, Gateways: []Gateway{{"edge-1", edge()}, {"edge-2", edge()}}, Leases: map[string]Lease{}}
	for _, o := range w.agents {
		n := model.Node{Name: o.name, Labels: edge()}
		if o.away {
			n.UnavailableReason = "it is cordoned"
		}
		v.Nodes = append(v.Nodes, n)
	}
	if w.now >= a.cut {
		a.seen = max(a.seen, w.now-time.Duration(w.IntN(1500))*time.Millisecond)
	}
	for _, p := range w.past {
		if p.at <= a.seen {
			v.Leases = p.leases
		}
	}
	return v
}

// step is one step of an agent, after each of which it may stand still.
func (w *world) step(a *agent) {
	now := w.clock(a)
	switch {
	case a.toOpen != nil:
		// The guard counts by its own time, whenever it is set.
		if a.until = *a.toOpen; now.Before(a.until) {
			w.opens++
			w.turns[fmt.Sprint(a.gateway, a.name)] = true
		}
		a.toOpen = nil
	case a.answer != nil:
		a.state = a.state.WriteSucceeded(*a.answer, a.began)
		if a.answer.Holder != "" {
			until := a.state.FenceUntil()
			a.toOpen, a.gateway = &until, a.answer.Gateway
		}
		a.answer, a.began = nil, time.Time{}
	case a.refused != nil || !a.began.IsZero() && !now.Before(a.expires):
		held, _ := a.state.Held(now)
		a.state = a.state.WriteFailed(a.name, a.refused, now)
		if held != "" && a.state.held.Gateway == "" {
			a.until = time.Time{}
		}
		a.refused, a.began = nil, time.Time{}
		a.asked++
	case !a.began.IsZero(): // it waits
	default:
		had := a.state.held.Gateway
		var write *Lease
		a.state, write, _ = a.state.Step(w.view(a), now)
		if had != "" && a.state.held.Gateway == "" {
			a.until = time.Time{} // the guard is closed before anything is written
		}
		if write != nil {
			a.began, a.expires, a.lease = now, now.Add(writeTimeout), *write
			a.asked++
			if (w.calm || w.IntN(20) > 0) && w.now >= a.cut { // else it is lost
				delay := time.Duration(w.IntN(80)) * time.Millisecond
				if !w.calm && w.IntN(15) == 0 {
					delay = time.Duration(w.IntN(6000)) * time.Millisecond
				}
				w.flying = append(w.flying, flight{w.now + delay, *write, a, a.asked})
			}
		}
	}
}

// land has the API take a write, or refuse it, and tell the agent, or not.
func (w *world) land(f flight) {
	heard := f.by.asked == f.asked && w.now >= f.by.cut && (w.calm || w.IntN(20) > 0)
	now := w.leases[f.lease.Gateway]
	if now.Version != f.lease.Version {
		if heard {
			f.by.refused = &now
		}
		return
	}
	version, _ := strconv.Atoi(now.Version)
	f.lease.Version = strconv.Itoa(version + 1)
	next := map[string]Lease{}
	for name, l := range w.leases {
		next[name] = l
	}
	next[f.lease.Gateway] = f.lease
	w.leases = next
	w.past = append(w.past, past{w.now, next})
	if heard {
		f.by.answer = &f.lease
	}
}

// check finds two nodes whose kernels let the same gateway work.
func (w *world) check() {
	by := map[string]string{}
	for _, a := range w.agents {
		if !w.clock(a).Before(a.until) {
			continue
		}
		if other := by[a.gateway]; other != "" {
			w.t.Fatalf("at %s both %s and %s are %s", w.now, other, a.name, a.gateway)
		}
		by[a.gateway] = a.name
	}
}

func (w *world) run(until time.Duration, trouble bool) {
	w.calm = !trouble
	for w.now < until {
		w.now += 5 * time.Millisecond
		var flying []flight
		for _, f := range w.flying {
			if f.at > w.now {
				flying = append(flying, f)
				continue
			}
			w.land(f)
		}
		w.flying = flying
		for _, a := range w.agents {
			if w.now < a.wakes || w.now < a.asleep {
				continue
			}
			w.step(a)
			w.check()
			a.wakes = w.now + time.Duration(5+w.IntN(40))*time.Millisecond
			if !trouble {
				a.away, a.cut = false, 0
				continue
			}
			switch w.IntN(2000) {
			case 0, 1, 2, 3:
				a.asleep = w.now + time.Duration(w.IntN(20000))*time.Millisecond
			case 4, 5:
				a.cut = w.now + time.Duration(w.IntN(20000))*time.Millisecond
			case 6:
				a.away = !a.away
			case 7: // its agent ends and another one starts, which knows nothing
				a.state, a.began, a.answer, a.refused, a.toOpen = State{}, time.Time{}, nil, nil, nil
				a.asked++
			}
		}
		w.check()
		if len(w.past) > 200 {
			w.past = w.past[100:]
		}
	}
}

// TestNeverTwo: whatever order things happen in, with clocks that run up to a third apart,
// agents that stand still between any two of their steps, writes that are late, lost or not
// answered, and watches that are behind, no two kernels let one gateway work at any instant.
// When the trouble is over every gateway is held.
func TestNeverTwo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), t: t, leases: map[string]Lease{}, turns: map[string]bool{}}
		for _, g := range []string{"edge-1", "edge-2"} {
			w.leases[g] = Lease{Gateway: g, Version: "1"}
		}
		w.past = []past{{0, w.leases}}
		for i := range 4 {
			w.agents = append(w.agents, &agent{name: string(rune('a' + i)), rate: 0.88 + 0.28*w.Float64(),
				offset: time.Duration(w.IntN(3600)) * time.Second})
		}
		w.run(4*time.Minute, true)
		if len(w.turns) < 3 || w.opens < 50 {
			t.Errorf("seed %d: %d renewals by %d nodes and gateways: the test sees too little", seed, w.opens, len(w.turns))
		}
		w.run(w.now+45*time.Second, false)
		open := map[string]bool{}
		for _, a := range w.agents {
			if w.clock(a).Before(a.until) {
				open[a.gateway] = true
			}
		}
		if len(open) != 2 {
			t.Errorf("seed %d: in the end %v are held, want both", seed, open)
		}
	}
}
