package migration

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/internal/randtest"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// TestSelect checks which tunnel an end sends over. It has an old and a next tunnel, sends over the
// old one, and the fabric wants the next one.
func TestSelect(t *testing.T) {
	t.Parallel()
	old, next := wireguard(1), wireguard(2)
	works := func(c TunnelID) wire.TunnelState {
		return wire.TunnelState{ID: c.hash(), Available: true, Verified: true}
	}
	uses := func(c TunnelID) wire.TunnelState {
		return wire.TunnelState{ID: c.hash(), Available: true, Verified: true, InUse: true}
	}
	tests := map[string]struct {
		active   TunnelID
		wanted   TunnelID
		verified []TunnelID // by this end; the others are silent
		peer     []wire.TunnelState
		kernel   TunnelID // what it sends over; zero = active
		want     TunnelID
	}{
		"the peer does not have it": {active: old, wanted: next, verified: []TunnelID{old}, peer: []wire.TunnelState{uses(old)}, want: old},
		"not verified here":         {active: old, wanted: next, verified: []TunnelID{old}, peer: []wire.TunnelState{uses(old), works(next)}, want: old},
		"not verified by the peer": {
			active: old, wanted: next, verified: []TunnelID{old, next},
			peer: []wire.TunnelState{uses(old), {ID: next.hash(), Available: true}}, want: old,
		},
		"withdrawn by the peer": {
			active: old, wanted: next, verified: []TunnelID{old, next},
			peer: []wire.TunnelState{uses(old), {ID: next.hash(), Verified: true}}, want: old,
		},
		"both verified it":       {active: old, wanted: next, verified: []TunnelID{old, next}, peer: []wire.TunnelState{uses(old), works(next)}, want: next},
		"the old one is silent":  {active: old, wanted: next, verified: []TunnelID{next}, peer: []wire.TunnelState{uses(old), works(next)}, want: next},
		"all are silent":         {active: old, wanted: next, peer: []wire.TunnelState{uses(old), works(next)}, want: old},
		"the target went silent": {active: next, wanted: next, verified: []TunnelID{old}, peer: []wire.TunnelState{uses(old)}, want: old},
		"the peer is behind":     {active: next, wanted: next, verified: []TunnelID{old, next}, peer: []wire.TunnelState{uses(old), works(next)}, want: next},
		"the ends diverged":      {active: next, wanted: wireguard(4), verified: []TunnelID{old, next}, peer: []wire.TunnelState{uses(old), works(next)}, want: old},
		"diverged, and first":    {active: old, wanted: wireguard(4), verified: []TunnelID{old, next}, peer: []wire.TunnelState{works(old), uses(next)}, want: old},
		"the kernel is behind":   {active: next, wanted: wireguard(4), verified: []TunnelID{old, next}, peer: []wire.TunnelState{uses(old), works(next)}, kernel: old, want: next},
	}
	for name, tt := range tests {
		now := time.Unix(1000, 0)
		p := NewPair(tt.wanted, nil, 1, now)
		p.tunnels = nil
		for _, c := range []TunnelID{old, next} {
			tunnel := p.add(c)
			tunnel.installed, tunnel.announced = true, true
			tunnel.replies, tunnel.lastReply = verifyReplies, now
			if !slices.Contains(tt.verified, c) {
				tunnel.unanswered, tunnel.lastReply = maxUnanswered, now.Add(-2*minSilence)
			}
		}
		p.active, p.kernelActive = tt.active, tt.active
		if tt.kernel != (TunnelID{}) {
			p.kernelActive = tt.kernel
		}
		p.onPeerReport(Message{Seq: 1, Tunnels: tt.peer}, now)
		p.advance(now)
		if p.active != tt.want {
			t.Errorf("%s: sends over %s, want %s", name, p.active, tt.want)
		}
	}
}

// TestRetire checks when an end removes a tunnel that it does not need. It announced the tunnel,
// and withdrew it with message 10.
func TestRetire(t *testing.T) {
	t.Parallel()
	old, next := wireguard(1), wireguard(2)
	tests := map[string]struct {
		ackSeq  uint64 // of the peer
		inUse   bool   // by the peer
		kernel  TunnelID
		after   time.Duration
		removed bool
	}{
		"the peer has not read it":          {ackSeq: 9, after: time.Hour},
		"the peer read it":                  {ackSeq: 10, after: retireDelay, removed: true},
		"packets may be in flight":          {ackSeq: 10, after: retireDelay - time.Millisecond},
		"the peer sends over it":            {ackSeq: 10, inUse: true, after: time.Hour},
		"a number that was never sent":      {ackSeq: 1 << 60, after: time.Hour},
		"the own kernel may send over it":   {ackSeq: 10, kernel: old, after: time.Hour},
		"the own kernel sends over another": {ackSeq: 10, kernel: next, after: retireDelay, removed: true},
	}
	for name, tt := range tests {
		now := time.Unix(1000, 0)
		p := NewPair(next, nil, 9, now)
		p.add(old).announced = true
		if tt.kernel != (TunnelID{}) {
			p.kernelActive = tt.kernel
		}
		p.advance(now)
		for range 3 {
			p.report(now)
		}
		p.onPeerReport(Message{Seq: 1, AckSeq: tt.ackSeq, Tunnels: []wire.TunnelState{{ID: old.hash(), InUse: tt.inUse}}}, now)
		p.advance(now)
		p.advance(now.Add(tt.after))
		if removed := p.find(old) == nil; removed != tt.removed {
			t.Errorf("%s: removed %t after %s", name, removed, tt.after)
		}
	}
}

// TestUnannounced checks that an unannounced tunnel is removed at once.
func TestUnannounced(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := NewPair(wireguard(1), nil, 1, now)
	p.SetWant(wireguard(2), nil, now)
	p.SetWant(wireguard(1), nil, now)
	if have := p.Tunnels(); len(have) != 1 || have[0] != wireguard(1) {
		t.Errorf("has %v", have)
	}
}

// TestLyingPeer sends random false reports. The end keeps a bounded number of tunnels. It switches
// to no tunnel without a reply over it.
func TestLyingPeer(t *testing.T) {
	t.Parallel()
	all := allTunnels()
	for seed := range uint64(randtest.Rounds(t, 50)) {
		r := rand.New(rand.NewPCG(seed, 2))
		now := time.Unix(1000, 0)
		p := NewPair(all[0], nil, 1, now)
		for step := range 500 {
			now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			if r.IntN(20) == 0 {
				p.SetWant(all[r.IntN(len(all))], nil, now)
			}
			p.SetInstalled(p.Tunnels(), p.active, now)
			out, _ := p.Tick(now)
			lie := Message{WantReply: r.IntN(2) == 0, Migrating: true, Seq: r.Uint64(), AckSeq: r.Uint64()}
			for _, c := range all {
				flags := r.IntN(16)
				lie.Tunnels = append(lie.Tunnels, wire.TunnelState{ID: c.hash(), Available: flags&1 != 0, Verified: flags&2 != 0, InUse: flags&4 != 0, Secondary: flags&8 != 0})
			}
			before := p.active
			on := p.Tunnels()[r.IntN(len(p.Tunnels()))]
			lie.ReplyTo = r.Uint64()
			p.Receive(on, lie, now)
			if p.active != before {
				t.Fatalf("seed %d, step %d: moved to %s without a reply over it", seed, step, p.active)
			}
			if len(p.tunnels) > maxTunnels || len(out) > maxTunnels {
				t.Fatalf("seed %d, step %d: %d tunnels, %d probes", seed, step, len(p.tunnels), len(out))
			}
		}
	}
}
