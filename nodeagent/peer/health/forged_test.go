package health

import (
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// forge sends a probe with an advert every millisecond for a time, as if it came from another
// gateway.
func (m *sim) forge(as, to *simNode, advert linkAdvert, d time.Duration) {
	probe := message{triggered: true, nonce: 1, from: as.self, to: to.self, linkAdvert: advert}
	for end := m.now.Add(d); m.now.Before(end); m.run(time.Millisecond) {
		m.send([]outgoing{{From: Listen{Addr: as.tunnel}, To: netip.AddrPortFrom(to.tunnel, 4804), Raw: probe.encode()}})
	}
}

// TestForgedAdverts checks that the advert of a probe counts only with the token that its sender
// received. Otherwise the receiver probes the sender and has the real advert a round trip later.
func TestForgedAdverts(t *testing.T) {
	t.Parallel()
	for _, advert := range []linkAdvert{{rank: Down}, {rank: Isolated, inUse: true}, {rank: Draining}} {
		m := newSim(t, defaultSettings, 2, 2)
		before := m.activeLink("a", "b")
		a, b := m.node("a", before.Local), m.node("b", before.Remote)
		for _, n := range m.nodes {
			n.pathChanges = nil
		}
		link := b.byFlow[flow{local: Listen{Addr: b.tunnel}, remote: a.tunnel}]
		sent := m.sent
		m.forge(a, b, advert, time.Second)
		forged := 1000
		if link.peerAdvert.rank != Good {
			t.Errorf("the forged advert %v is accepted", advert)
		}
		if after := m.activeLink("a", "b"); after != before {
			t.Errorf("the forged advert %v moved the traffic from %+v to %+v", advert, before, after)
		}
		for _, n := range m.nodes {
			if len(n.pathChanges) > 0 {
				t.Errorf("%v moved for a forged %v: %+v",
					n.name, advert, n.pathChanges)
			}
		}
		// The limit covers forged probes, replies to them, verifying probes and regular
		// traffic.
		if n := m.sent - sent; n > 3*forged {
			t.Errorf("%d packets after %d forged ones", n, forged)
		}
		// Real adverts still count at once.
		a.SetDraining(true)
		m.run(3*m.delay + 10*time.Millisecond)
		if link.peerAdvert.rank != Draining {
			t.Errorf("adverts of %v are ignored after forged probes", a.name)
		}
	}
}

// TestOlderAgent checks that the adverts of an agent without tokens count at once.
func TestOlderAgent(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 2, 2)
	before := m.activeLink("a", "b")
	a, b := m.node("a", before.Local), m.node("b", before.Remote)
	link := b.byFlow[flow{local: Listen{Addr: b.tunnel}, remote: a.tunnel}]
	m.withoutTokens = a
	m.run(time.Second)
	if link.peerToken != 0 {
		t.Fatal("a still has tokens: the test is void")
	}
	a.SetDraining(true)
	m.run(4*m.delay + 10*time.Millisecond)
	if link.peerAdvert.rank != Draining {
		t.Errorf("b has the advert %v", link.peerAdvert)
	}
}

// TestFlood checks that probes of unknown senders use neither the reply budget of known ones nor
// memory. It is not parallel: allocations of other tests would count.
func TestFlood(t *testing.T) {
	l := newGatewaySim(3, defaultSettings)
	node := remoteAddr(1 << 20)
	l.SetNodes([][]netip.Addr{{node}})
	l.run(time.Second)
	tunnel := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
	inside := Listen{Addr: tunnel.Addr, Device: vxlan}
	replies := func(at Listen, from netip.Addr, m message) (n int) {
		m.reply, m.to = false, l.self
		return len(l.receive(l.now, at, netip.AddrPortFrom(from, 4804), m.encode()))
	}
	honest := func(i int) message {
		return message{from: peerOf(i).hash(), token: l.byFlow[flow{local: tunnel, remote: remoteAddr(i)}].token, linkAdvert: linkAdvert{rank: Good}}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for round := range 4 {
		for i := range 30000 {
			stranger := remoteAddr(1<<21 + round*30000 + i)
			replies(tunnel, stranger, message{from: peerOf(0).hash()}) // unknown sender
			replies(inside, stranger, message{from: GatewayID{"a", ""}.hash()})
			replies(tunnel, remoteAddr(0), message{from: peerOf(0).hash()}) // at a peer's address
			replies(tunnel, remoteAddr(1), honest(1))                       // another peer
		}
		if replies(tunnel, remoteAddr(0), honest(0)) != 1 || replies(tunnel, remoteAddr(2), honest(2)) != 1 {
			t.Fatal("a peer got no reply")
		}
		if replies(inside, node, message{from: GatewayID{"a", ""}.hash()}) != 1 {
			t.Fatal("a node of this cluster got no reply")
		}
		l.now = l.now.Add(time.Second)
	}
	if s := l.Snapshot().Stats; s.Limited < 4*3*20000 {
		t.Errorf("the flood got replies: %+v", s)
	}
	// 120,000 unknown senders: not even their addresses are stored.
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	runtime.KeepAlive(l)
}

// TestUnknownSendersAreNoSiblings checks that packets from outside the cluster do not end isolation
// and that their senders get no updates.
func TestUnknownSendersAreNoSiblings(t *testing.T) {
	t.Parallel()
	l := newGatewaySim(1, defaultSettings)
	node, stranger := remoteAddr(1<<20), remoteAddr(1<<21)
	l.SetNodes([][]netip.Addr{{node}})
	at := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Device: vxlan}
	probe := message{sequence: 1, nonce: 2, from: GatewayID{"a", ""}.hash(), to: l.self}
	l.receive(l.now, at, netip.AddrPortFrom(node, 4804), probe.encode())
	for range 20 {
		l.receive(l.now, at, netip.AddrPortFrom(stranger, 4804), probe.encode())
		l.run(100 * time.Millisecond)
	}
	if !l.isolation.isolated {
		t.Error("a stranger counts as a node of the cluster")
	}
	if _, ok := l.subscribers[stranger]; ok || len(l.subscribers) != 1 {
		t.Errorf("got updates: %v", l.subscribers)
	}
}
