package health

import (
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// forge sends a probe that says something, as if it came from another gateway, every
// millisecond for a while.
func (m *sim) forge(as, to *simNode, says linkAdvert, d time.Duration) {
	probe := message{poke: true, nonce: 1, from: as.self, to: to.self, linkAdvert: says}
	for end := m.now.Add(d); m.now.Before(end); m.run(time.Millisecond) {
		m.send([]outgoing{{From: Listen{Addr: as.tunnel}, To: netip.AddrPortFrom(to.tunnel, 4804), Raw: probe.encode()}})
	}
}

// TestForgedWords: what a probe says counts only if it brings what its sender alone
// was told. Otherwise the sender is asked, so that the truth is known a round trip later.
func TestForgedWords(t *testing.T) {
	t.Parallel()
	for _, says := range []linkAdvert{{rank: Down}, {rank: Isolated, inUse: true}, {rank: Draining}} {
		m := newSim(t, calm, 2, 2)
		before := m.agreed("a", "b")
		a, b := m.node("a", before.Local), m.node("b", before.Remote)
		for _, n := range m.nodes {
			n.moves = nil
		}
		link := b.byFlow[flow{at: Listen{Addr: b.tunnel}, from: a.tunnel}]
		sent := m.sent
		m.forge(a, b, says, time.Second)
		forged := 1000
		if link.peerAdvert.rank != Good {
			t.Errorf("%v from somebody else is believed", says)
		}
		if after := m.agreed("a", "b"); after != before {
			t.Errorf("%v from somebody else moved the traffic from %+v to %+v", says, before, after)
		}
		for _, n := range m.nodes {
			if len(n.moves) > 0 {
				t.Errorf("%v moved for a forged %v: %+v", n.name, says, n.moves)
			}
		}
		// The forged probes, their answers, what is asked and what goes on anyway.
		if n := m.sent - sent; n > 3*forged {
			t.Errorf("%d packets after %d forged ones", n, forged)
		}
		// The real one is still heard at once.
		a.SetDraining(true)
		m.run(3*m.delay + 10*time.Millisecond)
		if link.peerAdvert.rank != Draining {
			t.Errorf("%v is not heard any more after forged probes", a.name)
		}
	}
}

// TestOlderAgentIsAsked: an agent that knows of no tokens is still heard at once.
func TestOlderAgentIsAsked(t *testing.T) {
	t.Parallel()
	m := newSim(t, calm, 2, 2)
	before := m.agreed("a", "b")
	a, b := m.node("a", before.Local), m.node("b", before.Remote)
	link := b.byFlow[flow{at: Listen{Addr: b.tunnel}, from: a.tunnel}]
	m.older = a
	m.run(time.Second)
	if link.theirs != 0 {
		t.Fatal("a still has tokens, so the test shows nothing")
	}
	a.SetDraining(true)
	m.run(4*m.delay + 10*time.Millisecond)
	if link.peerAdvert.rank != Draining {
		t.Errorf("b heard %v", link.peerAdvert)
	}
}

// TestFloodStarvesNobody: probes from wherever take the answers of nobody who is known,
// and no memory. Not parallel: what other tests allocate would count.
func TestFloodStarvesNobody(t *testing.T) {
	l := newLonely(3, calm)
	node := remoteAddr(1 << 20)
	l.SetNodes([][]netip.Addr{{node}})
	l.run(time.Second)
	tunnel := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
	inside := Listen{Addr: tunnel.Addr, Device: vxlan}
	answers := func(at Listen, from netip.Addr, m message) (n int) {
		m.reply, m.to = false, l.self
		return len(l.receive(l.now, at, netip.AddrPortFrom(from, 4804), m.encode()))
	}
	honest := func(i int) message {
		return message{from: peerOf(i).hash(), token: l.byFlow[flow{at: tunnel, from: remoteAddr(i)}].token, linkAdvert: linkAdvert{rank: Good}}
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
			answers(tunnel, stranger, message{from: peerOf(0).hash()}) // a stranger
			answers(inside, stranger, message{from: GatewayID{"a", ""}.hash()})
			answers(tunnel, remoteAddr(0), message{from: peerOf(0).hash()}) // at a peer's address
			answers(tunnel, remoteAddr(1), honest(1))                       // another peer
		}
		if answers(tunnel, remoteAddr(0), honest(0)) != 1 || answers(tunnel, remoteAddr(2), honest(2)) != 1 {
			t.Fatal("a peer got no answer")
		}
		if answers(inside, node, message{from: GatewayID{"a", ""}.hash()}) != 1 {
			t.Fatal("a node of this cluster got no answer")
		}
		l.now = l.now.Add(time.Second)
	}
	if s := l.Snapshot().Stats; s.Limited < 4*3*20000 {
		t.Errorf("the flood was answered: %+v", s)
	}
	// 120,000 senders that nobody knows: not so much as their addresses is kept.
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	runtime.KeepAlive(l)
}

// TestStrangersAreNoMates: who is no node of the cluster does not make a gateway
// think that it hears its cluster, and is not told of changes.
func TestStrangersAreNoMates(t *testing.T) {
	t.Parallel()
	l := newLonely(1, calm)
	node, stranger := remoteAddr(1<<20), remoteAddr(1<<21)
	l.SetNodes([][]netip.Addr{{node}})
	at := Listen{Addr: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Device: vxlan}
	ask := message{sequence: 1, nonce: 2, from: GatewayID{"a", ""}.hash(), to: l.self}
	l.receive(l.now, at, netip.AddrPortFrom(node, 4804), ask.encode())
	for range 20 {
		l.receive(l.now, at, netip.AddrPortFrom(stranger, 4804), ask.encode())
		l.run(100 * time.Millisecond)
	}
	if !l.mates.isolated {
		t.Error("a stranger passes for the cluster")
	}
	if _, told := l.subscribers[stranger]; told || len(l.subscribers) != 1 {
		t.Errorf("told of changes: %v", l.subscribers)
	}
}
