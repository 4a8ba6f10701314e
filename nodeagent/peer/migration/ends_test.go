package migration

import (
	"slices"
	"testing"
	"time"
)

func wireguard(epoch int) TunnelID {
	return TunnelID{Driver: "wireguard", Ports: [2]int{1000, 2000}, Epoch: epoch}
}

func ipsec(epoch int, alternate bool) TunnelID {
	return TunnelID{Driver: "ipsec", Epoch: epoch, Alternate: alternate}
}

func keys(epochs ...int) Keys { return Keys{"wireguard": epochs} }

// bothEnds is a pair with both ends, over a network without loss.
type bothEnds struct {
	pairs [2]*Pair
	now   time.Time
}

// newEnds returns both ends of a pair without history.
func newEnds(want TunnelID) *bothEnds {
	e := &bothEnds{now: time.Unix(0, 0).UTC()}
	for i := range e.pairs {
		e.pairs[i] = NewPair(want, nil, uint64(i+1)<<20, e.now)
	}
	return e
}

// run advances the time, with a round at each end every tenth of a second.
func (e *bothEnds) run(span time.Duration) {
	for end := e.now.Add(span); e.now.Before(end); e.now = e.now.Add(100 * time.Millisecond) {
		for i, p := range e.pairs {
			p.SetInstalled(p.Tunnels(), p.active, e.now)
			e.tick(p, e.pairs[1-i])
		}
	}
}

// tick delivers the probes of one end, and the replies.
func (e *bothEnds) tick(from, to *Pair) {
	out, _ := from.Tick(e.now)
	for _, o := range out {
		if reply, ok := to.Receive(o.On, o.Message, e.now); ok {
			from.Receive(o.On, reply, e.now)
		}
	}
}

// expect checks that both ends have only one tunnel and send over it.
func (e *bothEnds) expect(t *testing.T, want TunnelID) {
	t.Helper()
	for i, p := range e.pairs {
		if p.active != want || len(p.tunnels) != 1 || p.kernelBehind() {
			t.Errorf("end %d has %v and sends over %s, want %s alone", i, p.Tunnels(), p.active, want)
		}
	}
}

// TestEpochs checks that a pair moves to the newest common epoch from any start, even if one end
// reads the commit late.
func TestEpochs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		first, then [2]Keys // of both ends
		want, after int     // the active epoch; 0 = no common epoch
	}{
		"one reads it late":       {[2]Keys{keys(1, 2), keys(1)}, [2]Keys{keys(1, 2), keys(1, 2)}, 1, 2},
		"both are new":            {[2]Keys{keys(1, 2), keys(1, 2)}, [2]Keys{keys(2), keys(2)}, 2, 2},
		"one is new":              {[2]Keys{keys(1, 2), keys(2)}, [2]Keys{keys(2), keys(2)}, 2, 2},
		"the next one":            {[2]Keys{keys(2), keys(2)}, [2]Keys{keys(2, 3), keys(2, 3)}, 2, 3},
		"two rotations":           {[2]Keys{keys(2), keys(2, 3)}, [2]Keys{keys(3, 4), keys(3, 4)}, 2, 4},
		"dropped while one lacks": {[2]Keys{keys(1, 2), keys(1)}, [2]Keys{keys(2), keys(1)}, 1, 0},
		"both commits late":       {[2]Keys{keys(1, 2), keys(1)}, [2]Keys{keys(2), keys(2)}, 1, 2},
		"dropped already":         {[2]Keys{keys(1), keys(1)}, [2]Keys{keys(1, 2), keys(2)}, 1, 2},
	}
	newest := func(k Keys) TunnelID { return wireguard(slices.Max(k["wireguard"])) }
	for name, tt := range tests {
		e := &bothEnds{now: time.Unix(0, 0).UTC()}
		for i, k := range tt.first {
			e.pairs[i] = NewPair(newest(k), k, uint64(i+1)<<20, e.now)
		}
		e.run(time.Minute)
		checkEpoch(t, name, e, tt.want)
		for i, k := range tt.then {
			e.pairs[i].SetWant(newest(k), k, e.now)
		}
		e.run(time.Minute)
		checkEpoch(t, name+", then", e, tt.after)
	}
}

// checkEpoch checks that both ends send over an epoch; 0 = over different ones.
func checkEpoch(t *testing.T, name string, e *bothEnds, epoch int) {
	t.Helper()
	a, b := e.pairs[0], e.pairs[1]
	switch {
	case epoch == 0:
		if a.active == b.active {
			t.Errorf("%s: both ends use %s", name, a.active)
		}
	case a.active != wireguard(epoch) || b.active != wireguard(epoch):
		t.Errorf("%s: the ends use %s and %s, want epoch %d", name, a.active, b.active, epoch)
	case a.Progress(e.now).Reason == "" && len(a.Tunnels()) != 1:
		t.Errorf("%s: still has %v", name, a.Tunnels())
	}
}

// TestSecondary checks that both ends move to the secondary tunnel if one of them requests it, and
// back.
func TestSecondary(t *testing.T) {
	t.Parallel()
	for _, want := range []TunnelID{ipsec(1, false), ipsec(2, false), wireguard(1)} {
		for leader := range 2 {
			e := newEnds(want)
			e.run(10 * time.Second)
			e.pairs[leader].SetSecondary(true, e.now)
			e.run(time.Minute)
			e.expect(t, want.counterpart())
			for i, p := range e.pairs {
				if active, only := p.OverSecondary(); !active || !only {
					t.Errorf("%s, end %d of leader %d: active %t, only %t", want, i, leader, active, only)
				}
			}
			if why := e.pairs[leader].Progress(e.now).Reason; why != "moving to another endpoint" {
				t.Errorf("%s: %q", want, why)
			}
			e.pairs[leader].SetSecondary(false, e.now)
			e.run(time.Minute)
			e.expect(t, want)
			if active, only := e.pairs[leader].OverSecondary(); active || only {
				t.Errorf("%s, leader %d: active %t, only %t in the end", want, leader, active, only)
			}
		}
	}
}

// TestRestartDuringRetirement restarts a peer after this end withdrew a tunnel. This end keeps the
// tunnel until it knows that the kernel of the peer sends over the next one.
func TestRestartDuringRetirement(t *testing.T) {
	t.Parallel()
	old, next := wireguard(1), wireguard(2)
	e := newEnds(old)
	e.run(5 * time.Second)
	for _, p := range e.pairs {
		p.SetWant(next, nil, e.now)
	}
	here := e.pairs[0]
	for here.find(old).releasedAt.IsZero() {
		e.run(100 * time.Millisecond)
	}
	peer := Restore(e.pairs[1].Saved(), next, nil, 1<<40, e.now)
	if !peer.kernelBehind() {
		t.Error("a restored pair assumes what its kernel sends over")
	}
	for range 100 { // ten seconds without a round at the peer
		e.now = e.now.Add(100 * time.Millisecond)
		for _, tunnel := range peer.tunnels {
			tunnel.installed = true
		}
		e.tick(peer, here)
		here.Tick(e.now)
		if here.find(old) == nil {
			t.Fatal("removed a tunnel that the kernel of the peer may send over")
		}
	}
	if !here.find(old).releasedAt.IsZero() {
		t.Error("a tunnel in use by the peer counts as released")
	}
	e.pairs[1] = peer
	e.run(20 * time.Second)
	e.expect(t, next)
}

// TestRendezvous replaces the peer by another node without history while one end cannot create the
// wanted tunnel next to the old one. They meet over the secondary tunnel.
func TestRendezvous(t *testing.T) {
	t.Parallel()
	old, next := wireguard(1), wireguard(3) // odd epochs share a port
	e := newEnds(old)
	e.run(5 * time.Second)
	e.pairs[0].SetWant(next, nil, e.now)
	e.run(5 * time.Second)
	e.pairs[1] = NewPair(next, nil, 1<<40, e.now)
	for range int(2 * secondaryAfter / time.Second) {
		for _, p := range e.pairs {
			p.SetAlive(false, e.now)
		}
		e.run(time.Second)
	}
	for i, p := range e.pairs {
		if p.active != next {
			t.Errorf("end %d has %s and sends over %s while its link is down", i, p.Tunnels(), p.active)
		}
	}
	for _, p := range e.pairs {
		p.SetAlive(true, e.now)
	}
	e.run(20 * time.Second)
	e.expect(t, next)
}

// TestRestore checks that saved state counts if there are keys for it.
func TestRestore(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0).UTC()
	saved := Saved{Tunnels: []TunnelID{wireguard(1), wireguard(2)}, Active: wireguard(1)}
	tests := map[string]struct {
		keys   Keys
		active int
		have   int
	}{
		"all":     {keys(1, 2), 1, 2},
		"unknown": {nil, 1, 2},
		"new":     {keys(2), 2, 1},
		"other":   {keys(2, 3), 2, 2},
	}
	for name, tt := range tests {
		want := 2
		if tt.keys != nil {
			want = slices.Max(tt.keys["wireguard"])
		}
		p := Restore(saved, wireguard(want), tt.keys, 1, now)
		if p.active != wireguard(tt.active) || len(p.Tunnels()) != tt.have {
			t.Errorf("%s: has %v and sends over %s", name, p.Tunnels(), p.active)
		}
	}
}

// TestConflicts checks which tunnels one end cannot have at the same time.
func TestConflicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b TunnelID
		want bool
	}{
		{ipsec(1, false), ipsec(1, false), false}, // the same
		{ipsec(1, false), ipsec(1, true), false},
		{ipsec(1, false), ipsec(2, false), false},
		{ipsec(1, true), ipsec(2, false), true},
		{ipsec(1, false), ipsec(2, true), true},
		{ipsec(1, false), ipsec(3, false), true},
		{wireguard(1), wireguard(1).counterpart(), false},
		{wireguard(1), wireguard(3), true},
		{wireguard(1), ipsec(1, false), false},
	}
	for _, tt := range tests {
		if tt.a.conflictsWith(tt.b) != tt.want || tt.b.conflictsWith(tt.a) != tt.want {
			t.Errorf("%s and %s: want %t", tt.a, tt.b, tt.want)
		}
	}
}
