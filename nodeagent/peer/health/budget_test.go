package health

import (
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
)

// lonely is a gateway with n tunnels and no network: each probe gets a reply at once, except those
// to a dead target.
type lonely struct {
	*Prober
	now  time.Time
	dead map[netip.Addr]bool
	sent map[netip.Addr]int
	uses map[netip.Addr]bool // the peer uses the link
}

func remoteAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func newLonely(n int, s Settings) *lonely {
	l := &lonely{now: epoch, dead: map[netip.Addr]bool{}, sent: map[netip.Addr]int{}}
	l.Prober = New(Config{Cluster: "a", Gateway: "a1", Port: 4804, Settings: s})
	l.clock = func() time.Time { return l.now }
	var targets []Target
	for i := range n {
		targets = append(targets, Target{Peer: peerOf(i), Source: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Addr: remoteAddr(i)})
	}
	l.SetReady(true)
	l.SetTargets(targets)
	return l
}

func peerOf(i int) GatewayID {
	return GatewayID{Cluster: "c" + remoteAddr(i).String(), Gateway: "g"}
}

// run advances the simulated time.
func (l *lonely) run(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); {
		packets, wait := l.Tick(l.now)
		for _, o := range packets {
			l.sent[o.To.Addr()]++
			if !l.dead[o.To.Addr()] {
				l.reply(o)
			}
		}
		l.now = l.now.Add(wait)
	}
}

func (l *lonely) reply(o outgoing) {
	m, _ := decode(o.Raw)
	m.reply, m.from, m.to, m.linkAdvert = true, m.to, m.from, linkAdvert{rank: Good, inUse: l.uses[o.To.Addr()]}
	l.receive(l.now.Add(time.Millisecond), o.From, o.To, m.encode())
}

func (l *lonely) total() (n int) {
	for _, sent := range l.sent {
		n += sent
	}
	return n
}

func TestBudget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		targets   int
		low, high int // probes in ten seconds
	}{
		{"few are probed at the full rate", 40, 1600, 1680},
		{"as many as the budget allows", 100, 4000, 4200},
		{"more are stretched", 1000, 4000, 4200},
		{"up to a bound", 3000, 6000, 6400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLonely(tt.targets, calm)
			l.run(10 * time.Second)
			clear(l.sent)
			l.run(10 * time.Second)
			if n := l.total(); n < tt.low || n > tt.high {
				t.Errorf("%d probes in 10 s, want %d to %d", n, tt.low, tt.high)
			}
		})
	}
}

// TestBudgetOfActiveLinks checks that links in use by either end keep the full rate.
func TestBudgetOfActiveLinks(t *testing.T) {
	t.Parallel()
	l := newLonely(3000, calm)
	l.run(10 * time.Second)
	l.SetActiveLinks(map[string]model.Path{peerOf(7).Cluster: {Local: "a1", Remote: "g"}, peerOf(8).Cluster: {Local: "a2", Remote: "g"}})
	l.uses = map[netip.Addr]bool{remoteAddr(9): true}
	advert := message{from: peerOf(9).hash(), to: l.self, linkAdvert: linkAdvert{rank: Good, inUse: true}}
	advert.token = l.byFlow[flow{at: Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}, from: remoteAddr(9)}].token
	l.receive(l.now, Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}, netip.AddrPortFrom(remoteAddr(9), 4804), advert.encode())
	clear(l.sent)
	l.run(5 * time.Second)
	for i, want := range map[int]int{7: 20, 8: 1, 9: 20} {
		if n := l.sent[remoteAddr(i)]; n < want || n > want+3 {
			t.Errorf("target %d got %d probes in 5 s, want %d", i, n, want)
		}
	}
	s := l.Snapshot()
	for i, want := range map[int]bool{7: false, 8: true, 9: false} {
		if link := s.Links[s.byPeer[peerOf(i)][0]]; link.Standby != want {
			t.Errorf("target %d: standby is %v", i, link.Standby)
		}
	}
}

// TestStandbyDeath kills a standby link: after its next probe, detection takes no longer than for a
// link in use.
func TestStandbyDeath(t *testing.T) {
	t.Parallel()
	l := newLonely(3000, calm)
	l.run(10 * time.Second)
	l.dead[remoteAddr(5)] = true
	l.run(maxStretch*calm.Interval + 900*time.Millisecond)
	link := func() Link {
		s := l.Snapshot()
		return s.Links[s.byPeer[peerOf(5)][0]]
	}
	if have := link(); have.State() != status.Disconnected || have.Rank != Down {
		t.Fatalf("the link is %+v", have)
	}
	clear(l.sent)
	l.run(10 * time.Second)
	if n := l.sent[remoteAddr(5)]; n > 3 {
		t.Errorf("a dead link got %d probes in 10 s", n)
	}
	delete(l.dead, remoteAddr(5))
	l.run(maxStretch*calm.Interval + 600*time.Millisecond)
	if have := link(); have.State() != status.Connected {
		t.Errorf("replies again, but the link is %+v", have)
	}
}

// TestPokesAreBounded changes the adverts of many links repeatedly.
func TestPokesAreBounded(t *testing.T) {
	t.Parallel()
	l := newLonely(500, calm)
	l.run(5 * time.Second)
	begin := l.Snapshot().Stats.Updates
	for i := range 100 {
		l.SetDraining(i%2 == 0)
		l.run(10 * time.Millisecond)
	}
	l.SetDraining(true)
	l.run(time.Second)
	if n := l.Snapshot().Stats.Updates - begin; n < 500 || n > (2+1)*updateRate {
		t.Errorf("%d triggered updates in 2 s", n)
	}
	for _, o := range l.sorted {
		if o.sentAdvert.rank != Draining || o.triggered.nonce != 0 {
			t.Fatalf("%v got no update: %+v", o.Peer, o.sentAdvert)
		}
	}
}

// TestUnansweredPoke checks that an unanswered triggered update is repeated a few times, and then
// left to the probes.
func TestUnansweredPoke(t *testing.T) {
	t.Parallel()
	l := newLonely(1, calm)
	l.run(5 * time.Second)
	l.dead[remoteAddr(0)] = true
	begin := l.Snapshot().Stats.Updates
	l.SetDraining(true)
	l.run(400 * time.Millisecond)
	if n := l.Snapshot().Stats.Updates - begin; n != 2 {
		t.Errorf("%d triggered updates in 0.4 s, want 2", n)
	}
	l.run(20 * time.Second) // the death is another change
	if n := l.Snapshot().Stats.Updates - begin; n > 2*maxUpdateTries {
		t.Errorf("%d triggered updates for two changes", n)
	}
}

func TestSubscribersAreBounded(t *testing.T) {
	t.Parallel()
	l := newLonely(1, calm)
	l.run(time.Second)
	at := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Device: vxlan}
	probe := message{sequence: 1, nonce: 2, from: GatewayID{"a", ""}.hash(), to: l.self}
	var nodes [][]netip.Addr
	for i := range maxSubscribers + 100 {
		nodes = append(nodes, []netip.Addr{remoteAddr(i)})
	}
	l.SetNodes(nodes)
	for i := range maxSubscribers + 100 {
		if len(l.receive(l.now, at, netip.AddrPortFrom(remoteAddr(i), 4804), probe.encode())) != 1 {
			t.Fatalf("node %d got no reply", i)
		}
	}
	if len(l.subscribers) != maxSubscribers {
		t.Errorf("%d subscribers", len(l.subscribers))
	}
	pushed := func() uint64 {
		before := l.Snapshot().Stats.Pushes
		l.SetDraining(!l.draining)
		l.run(50 * time.Millisecond)
		return l.Snapshot().Stats.Pushes - before
	}
	if n := pushed(); n != maxSubscribers {
		t.Errorf("%d nodes got an update", n)
	}
	l.run(10 * time.Second)
	l.isolation = isolationDetector{} // no node probes, but the gateway must not be isolated
	if n := pushed(); n != 0 || len(l.subscribers) != 0 {
		t.Errorf("%d nodes got an update long after their last probe", n)
	}
}

func FuzzReceive(f *testing.F) {
	l := newLonely(2, calm)
	l.run(time.Second)
	f.Add((&message{from: peerOf(0).hash(), to: l.self, linkAdvert: linkAdvert{rank: Unsteady, inUse: true}}).encode(), true)
	f.Add((&message{to: l.self, generation: 1}).encode(), false)
	f.Add((&message{reply: true, pages: 2, from: peerOf(1).hash(), to: l.self, triggered: true}).encode(), true)
	f.Fuzz(func(t *testing.T, raw []byte, tunnel bool) {
		at := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
		if !tunnel {
			at.Device = vxlan
		}
		for _, o := range l.receive(l.now, at, netip.AddrPortFrom(remoteAddr(0), 4804), raw) {
			if m, err := decode(o.Raw); err != nil || !m.reply {
				t.Errorf("replied with %+v, %v", m, err)
			}
		}
		l.now = l.now.Add(time.Millisecond)
		l.Tick(l.now)
	})
}

// BenchmarkTick simulates one second of a gateway with 3000 tunnels that all reply: the probes, the
// replies, and the updates.
func BenchmarkTick(b *testing.B) {
	l := newLonely(3000, calm)
	l.run(10 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		l.run(time.Second)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	l := newLonely(3000, calm)
	l.run(10 * time.Second)
	for b.Loop() {
		l.Snapshot()
	}
}

func BenchmarkAnnounce(b *testing.B) {
	l := newLonely(3000, calm)
	l.run(10 * time.Second)
	for b.Loop() {
		l.publishChanges(nil, l.now)
	}
}

// TestOvertakenPoke delivers an older reply after a change: the next triggered update corrects it.
func TestOvertakenPoke(t *testing.T) {
	t.Parallel()
	m := newSim(t, calm, 1, 1)
	a, b := m.node("a", "a-gw0"), m.node("b", "b-gw0")
	a.SetDraining(true)
	m.run(10 * time.Millisecond)
	received := b.byFlow[flow{at: Listen{Addr: b.tunnel}, from: a.tunnel}]
	if received.peerAdvert.rank != Draining {
		t.Fatalf("b has the advert %v", received.peerAdvert)
	}
	old := message{nonce: 1, from: a.self, to: b.self, linkAdvert: linkAdvert{rank: Good, inUse: true}, token: received.token}
	m.send([]outgoing{{From: Listen{Addr: a.tunnel}, To: netip.AddrPortFrom(b.tunnel, 4804), Raw: old.encode()}})
	m.run(2 * time.Millisecond)
	if received.peerAdvert.rank != Good {
		t.Fatal("the old advert did not arrive")
	}
	m.run(calm.Interval / 3)
	if received.peerAdvert.rank != Draining {
		t.Error("b still has the old advert")
	}
}
