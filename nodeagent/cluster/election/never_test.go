package election

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// world is a cluster of agents with different clocks and one API with Leases.
type world struct {
	*rand.Rand
	t      testing.TB
	now    time.Duration // true time
	leases map[string]Lease
	past   []past // of leases, for late watches
	agents []*agent
	flying []flight
	opens  int
	turns  map[string]bool
	calm   bool // no request is lost
}

type past struct {
	at     time.Duration
	leases map[string]Lease
}

// flight is a write on its way to the API.
type flight struct {
	at      time.Duration
	lease   Lease
	by      *agent
	request int // request number; the agent receives the reply only while it waits for this request
}

// agent is the agent of one node. It freezes or loses the API for random times, and may pause
// between any two steps.
type agent struct {
	name        string
	rate        float64 // of its clock
	offset      time.Duration
	state       State
	wakes       time.Duration
	asleep      time.Duration // frozen until
	cut         time.Duration // disconnected from the API until
	viewTime    time.Duration // time of its view
	unavailable bool
	request     int
	startedAt   time.Time // start of the pending write; zero = none
	expires     time.Time
	lease       Lease
	answer      *Lease // reply to the write, not processed yet
	refused     *Lease
	toOpen      *time.Time // deadline of the fence that it opens next
	gateway     string     // gateway of the fence
	until       time.Time  // when the fence closes
}

func (w *world) clock(a *agent) time.Time {
	return start.Add(a.offset + time.Duration(float64(w.now)*a.rate))
}

func (w *world) view(a *agent) ClusterView {
	v := ClusterView{Node: a.name, Gateways: []Gateway{{"edge-1", edge()}, {"edge-2", edge()}}, Leases: map[string]Lease{}}
	for _, o := range w.agents {
		n := model.Node{Name: o.name, Labels: edge()}
		if o.unavailable {
			n.UnavailableReason = "it is cordoned"
		}
		v.Nodes = append(v.Nodes, n)
	}
	if w.now >= a.cut {
		a.viewTime = max(a.viewTime, w.now-time.Duration(w.IntN(1500))*time.Millisecond)
	}
	for _, p := range w.past {
		if p.at <= a.viewTime {
			v.Leases = p.leases
		}
	}
	return v
}

// step makes one step of an agent.
func (w *world) step(a *agent) {
	now := w.clock(a)
	switch {
	case a.toOpen != nil:
		// The deadline does not depend on the time at which the agent opens the fence.
		if a.until = *a.toOpen; now.Before(a.until) {
			w.opens++
			w.turns[fmt.Sprint(a.gateway, a.name)] = true
		}
		a.toOpen = nil
	case a.answer != nil:
		a.state = a.state.WriteSucceeded(*a.answer, a.startedAt)
		if a.answer.Holder != "" {
			until := a.state.FenceUntil()
			a.toOpen, a.gateway = &until, a.answer.Gateway
		}
		a.answer, a.startedAt = nil, time.Time{}
	case a.refused != nil || !a.startedAt.IsZero() && !now.Before(a.expires):
		held, _ := a.state.Held(now)
		a.state = a.state.WriteFailed(a.name, a.refused, now)
		if held != "" && a.state.held.Gateway == "" {
			a.until = time.Time{}
		}
		a.refused, a.startedAt = nil, time.Time{}
		a.request++
	case !a.startedAt.IsZero(): // waits for the reply
	default:
		had := a.state.held.Gateway
		var write *Lease
		a.state, write, _ = a.state.Step(w.view(a), now)
		if had != "" && a.state.held.Gateway == "" {
			a.until = time.Time{} // the fence closes before the write
		}
		if write != nil {
			a.startedAt, a.expires, a.lease = now, now.Add(writeTimeout), *write
			a.request++
			if (w.calm || w.IntN(20) > 0) && w.now >= a.cut { // otherwise the write is lost
				delay := time.Duration(w.IntN(80)) * time.Millisecond
				if !w.calm && w.IntN(15) == 0 {
					delay = time.Duration(w.IntN(6000)) * time.Millisecond
				}
				w.flying = append(w.flying, flight{w.now + delay, *write, a, a.request})
			}
		}
	}
}

// land delivers a write to the API. The API stores or refuses it, and its reply may be lost.
func (w *world) land(f flight) {
	delivered := f.by.request == f.request && w.now >= f.by.cut && (w.calm || w.IntN(20) > 0)
	now := w.leases[f.lease.Gateway]
	if now.Version != f.lease.Version {
		if delivered {
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
	if delivered {
		f.by.answer = &f.lease
	}
}

// check fails the test if two nodes have an open fence of the same gateway.
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

func (w *world) run(until time.Duration, faults bool) {
	w.calm = !faults
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
			if !faults {
				a.unavailable, a.cut = false, 0
				continue
			}
			switch w.IntN(2000) {
			case 0, 1, 2, 3:
				a.asleep = w.now + time.Duration(w.IntN(20000))*time.Millisecond
			case 4, 5:
				a.cut = w.now + time.Duration(w.IntN(20000))*time.Millisecond
			case 6:
				a.unavailable = !a.unavailable
			case 7: // the agent restarts without state
				a.state, a.startedAt, a.answer, a.refused, a.toOpen = State{}, time.Time{}, nil, nil, nil
				a.request++
			}
		}
		w.check()
		if len(w.past) > 200 {
			w.past = w.past[100:]
		}
	}
}

// TestNeverTwo checks that no two nodes have an open fence of one gateway at any instant. The rates
// of clocks differ by up to a third. Agents pause between any two steps. Writes and watches are
// late. Writes and replies are lost. After a time without faults, every gateway has a holder.
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
			t.Errorf("seed %d: %d renewals by %d nodes and gateways: the test covers too little", seed, w.opens, len(w.turns))
		}
		w.run(w.now+45*time.Second, false)
		open := map[string]bool{}
		for _, a := range w.agents {
			if w.clock(a).Before(a.until) {
				open[a.gateway] = true
			}
		}
		if len(open) != 2 {
			t.Errorf("seed %d: held at the end: %v, want both", seed, open)
		}
	}
}
