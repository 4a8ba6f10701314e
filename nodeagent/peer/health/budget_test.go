package health

import (
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
)

// gatewaySim is a gateway with n tunnels and no network. Each probe gets a reply at once, unless
// its target is dead.
type gatewaySim struct {
	*Prober
	now  time.Time
	dead map[netip.Addr]bool
	sent map[netip.Addr]int
	// traffic has the remote gateways that report traffic. list has the link states of the
	// sibling.
	traffic map[netip.Addr]bool
	list    *linkStateList
}

func remoteAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func newGatewaySim(n int, s Settings) *gatewaySim {
	l := &gatewaySim{now: epoch, dead: map[netip.Addr]bool{}, sent: map[netip.Addr]int{}}
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
func (g *gatewaySim) run(d time.Duration) {
	for end := g.now.Add(d); g.now.Before(end); {
		packets, wait := g.Tick(g.now)
		for _, o := range packets {
			g.sent[o.To.Addr()]++
			if !g.dead[o.To.Addr()] {
				g.reply(o)
			}
		}
		g.now = g.now.Add(wait)
	}
}

func (g *gatewaySim) reply(o outgoing) {
	m, _ := decode(o.Raw)
	has := m.generation
	m.reply, m.from, m.to, m.generation, m.linkAdvert = true, m.to, m.from, 0, linkAdvert{rank: Good, traffic: g.traffic[o.To.Addr()]}
	replies := []message{m}
	if o.From.Device != "" && g.list != nil {
		replies = g.list.replies(has, m)
	}
	for _, m := range replies {
		g.receive(g.now.Add(time.Millisecond), o.From, o.To, m.encode())
	}
}

func (g *gatewaySim) total() (n int) {
	for _, sent := range g.sent {
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
		{"few", 40, 400, 420},
		{"as many as the budget allows", 100, 1000, 1050},
		{"more share the budget", 1000, 1000, 1050},
		{"up to a bound", 3000, 3000, 3200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newGatewaySim(tt.targets, defaultSettings)
			l.run(10 * time.Second)
			clear(l.sent)
			l.run(10 * time.Second)
			if n := l.total(); n < tt.low || n > tt.high {
				t.Errorf("%d probes in 10 s, want %d to %d", n, tt.low, tt.high)
			}
		})
	}
}

// TestIdleLinksShareTicks checks that many idle links cause at most groupsPerInterval wake-ups in
// an interval.
func TestIdleLinksShareTicks(t *testing.T) {
	t.Parallel()
	for _, targets := range []int{40, 1000} {
		l := newGatewaySim(targets, defaultSettings)
		l.run(20 * time.Second)
		ticks, largest := 0, 0
		for end := l.now.Add(10 * time.Second); l.now.Before(end); {
			packets, wait := l.Tick(l.now)
			for _, o := range packets {
				l.reply(o)
			}
			if len(packets) > 0 {
				ticks++
			}
			largest = max(largest, len(packets))
			l.now = l.now.Add(wait)
		}
		// A link that changes its group sends packets between the ticks of the groups.
		if limit := 10 * int(time.Second/defaultSettings.Interval) * groupsPerInterval; ticks > limit+limit/10 {
			t.Errorf("%d targets: %d ticks with packets in 10 s, want at most %d", targets, ticks, limit)
		}
		if largest > 20 {
			t.Errorf("%d targets: %d packets at once", targets, largest)
		}
	}
}

// TestTrafficIsProbedAtFullRate sends traffic at this gateway, at the peer and at a sibling.
func TestTrafficIsProbedAtFullRate(t *testing.T) {
	t.Parallel()
	l := newGatewaySim(3000, defaultSettings)
	own, sibling := netip.AddrFrom4([4]byte{192, 0, 2, 1}), netip.AddrFrom4([4]byte{192, 0, 2, 2})
	targets := []Target{{Peer: GatewayID{"a", "a2"}, Source: own, Addr: sibling, Device: vxlan}}
	for _, o := range l.sorted {
		targets = append(targets, o.Target)
	}
	l.SetTargets(targets)
	l.run(20 * time.Second)
	l.SetActiveLinks(map[string]model.Path{peerOf(8).Cluster: {Local: "a1", Remote: "g"}})
	l.SetTraffic(map[string]bool{peerOf(7).Cluster: true})
	l.traffic = map[netip.Addr]bool{remoteAddr(9): true}
	advert := message{from: peerOf(9).hash(), to: l.self, linkAdvert: linkAdvert{rank: Good, traffic: true}}
	advert.token = l.byFlow[flow{local: Listen{Addr: own}, remote: remoteAddr(9)}].token
	l.receive(l.now, Listen{Addr: own}, netip.AddrPortFrom(remoteAddr(9), 4804), advert.encode())
	busy := linkAdvert{rank: Good, traffic: true}
	list := newLinkStateList([]entry{{peerOf(10).hash(), busy}})
	l.list = &list
	l.run(time.Second)
	clear(l.sent)
	l.run(5 * time.Second)
	for i, want := range map[int]int{7: 20, 8: 0, 9: 20, 10: 20, 11: 0} {
		if n := l.sent[remoteAddr(i)]; n < want || n > want+3 {
			t.Errorf("target %d got %d probes in 5 s, want %d", i, n, want)
		}
	}
	// Only packets of this gateway count in its own reports.
	for _, e := range l.linkStates.entries {
		if want := e.hash == peerOf(7).hash(); e.traffic != want {
			t.Errorf("entry %x reports traffic %v", e.hash, e.traffic)
		}
	}
	// A change of traffic alone requires no new choice of paths.
	l.SetTraffic(nil)
	changes := 0
	l.config.OnChange = func() { changes++ }
	idle := linkAdvert{rank: Good}
	list = newLinkStateList([]entry{{peerOf(10).hash(), idle}}).withDelta(list)
	l.traffic = nil
	l.run(10 * time.Second)
	clear(l.sent)
	l.run(5 * time.Second)
	for _, i := range []int{7, 9, 10} {
		if n := l.sent[remoteAddr(i)]; n > 3 {
			t.Errorf("target %d got %d probes in 5 s after its traffic ended", i, n)
		}
	}
	if changes != 0 {
		t.Errorf("%d changes of links were reported", changes)
	}
}

// TestIdleLinkDies kills a link without traffic. From the first packet on, its cluster moves as
// fast as from a link with traffic. The other cluster receives nothing over the dead link and needs
// the same time again.
func TestIdleLinkDies(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		m := newSim(t, defaultSettings, 3, 3)
		m.idle = true
		for _, n := range m.nodes {
			m.forward(n)
		}
		m.run(time.Minute + time.Duration(round)*defaultSettings.Interval/4)
		before := m.activeLink("a", "b")
		m.cut(func(from, to string) bool {
			return from == before.Local && to == before.Remote || from == before.Remote && to == before.Local
		})
		begin := m.now
		m.idle = false
		m.forward(m.node("a", before.Local))
		m.run(2 * time.Second)
		after := m.activeLink("a", "b")
		if after.Path == before.Path || after.Rank != Good {
			t.Fatalf("round %d: from %+v to %+v", round, before, after)
		}
		if took := m.lastMove("a", "b", begin); took > 2*820*time.Millisecond {
			t.Errorf("round %d: all moved after %v", round, took)
		}
	}
}

// TestStandbyDeath kills a standby link: after its next probe, detection takes no longer than for a
// link in use.
func TestStandbyDeath(t *testing.T) {
	t.Parallel()
	l := newGatewaySim(3000, defaultSettings)
	l.run(10 * time.Second)
	l.dead[remoteAddr(5)] = true
	l.run(maxIdleInterval + 900*time.Millisecond)
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
	l.run(maxIdleInterval + 600*time.Millisecond)
	if have := link(); have.State() != status.Connected {
		t.Errorf("replies again, but the link is %+v", have)
	}
}

// TestUpdatesAreBounded changes the adverts of many links repeatedly.
func TestUpdatesAreBounded(t *testing.T) {
	t.Parallel()
	l := newGatewaySim(500, defaultSettings)
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

// TestUnansweredUpdate checks that an unanswered triggered update is repeated only a few times.
// After that, only regular probes report the change.
func TestUnansweredUpdate(t *testing.T) {
	t.Parallel()
	l := newGatewaySim(1, defaultSettings)
	l.SetTraffic(map[string]bool{peerOf(0).Cluster: true})
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
	l := newGatewaySim(1, defaultSettings)
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
	l := newGatewaySim(2, defaultSettings)
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
	l := newGatewaySim(3000, defaultSettings)
	l.run(10 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		l.run(time.Second)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	l := newGatewaySim(3000, defaultSettings)
	l.run(10 * time.Second)
	for b.Loop() {
		l.Snapshot()
	}
}

func BenchmarkAnnounce(b *testing.B) {
	l := newGatewaySim(3000, defaultSettings)
	l.run(10 * time.Second)
	for b.Loop() {
		l.publishChanges(nil, l.now)
	}
}

// TestOvertakenUpdate delivers an older reply after a change: the next triggered update corrects
// it.
func TestOvertakenUpdate(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 1, 1)
	a, b := m.node("a", "a-gw0"), m.node("b", "b-gw0")
	a.SetDraining(true)
	m.run(10 * time.Millisecond)
	received := b.byFlow[flow{local: Listen{Addr: b.tunnel}, remote: a.tunnel}]
	if received.peerAdvert.rank != Draining {
		t.Fatalf("b has the advert %v", received.peerAdvert)
	}
	old := message{nonce: 1, from: a.self, to: b.self, linkAdvert: linkAdvert{rank: Good, inUse: true}, token: received.token}
	m.send([]outgoing{{From: Listen{Addr: a.tunnel}, To: netip.AddrPortFrom(b.tunnel, 4804), Raw: old.encode()}})
	m.run(2 * time.Millisecond)
	if received.peerAdvert.rank != Good {
		t.Fatal("the old advert did not arrive")
	}
	m.run(defaultSettings.Interval / 3)
	if received.peerAdvert.rank != Draining {
		t.Error("b still has the old advert")
	}
}
