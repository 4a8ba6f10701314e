package feed

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// openConnections opens connections to a server from an address and sends nothing on them.
func openConnections(t *testing.T, from netip.Addr, to netip.AddrPort, many int) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: 20 * time.Second}
	for range many {
		conn, err := dialer.Dial("tcp4", to.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// calling returns a peer that connects from its own address.
func calling(peer Peer, from byte) (Peer, netip.Addr) {
	source := netip.AddrFrom4([4]byte{127, 81, 0, from})
	peer.Addrs = []netip.Addr{source}
	return peer, source
}

// TestIdleHandshakes checks that idle connections, of a stranger with many addresses or of another
// peer, keep out no client. At the client's own address they delay it only briefly.
func TestIdleHandshakes(t *testing.T) {
	t.Parallel()
	a, b, c := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "c")
	knownA, fromA := calling(a.peer, 1)
	knownC, fromC := calling(c.peer, 2)
	patient := testTiming
	patient.Handshake = time.Hour // an idle handshake has no timeout
	s := startServerTiming(t, patient, b, "", knownA, knownC)
	publish(t, s, stateOf("b", ready("one")))
	await(t, "the listener", func() bool {
		conn, err := net.Dial("tcp4", b.peer.Addr.String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for i := range 80 {
		from := netip.AddrFrom4([4]byte{127, 82, 0, byte(1 + i)})
		openConnections(t, from, b.peer.Addr, 4)
	}
	openConnections(t, fromC, b.peer.Addr, 200)
	openConnections(t, fromA, b.peer.Addr, 200)
	call := b.peer
	call.Source = fromA
	startClient(t, a.id, testTiming, call).awaitState(t, stateOf("b", ready("one")))
	s.Server.mu.Lock()
	n := len(s.sessions)
	s.Server.mu.Unlock()
	if n > maxUnknownSessions+2*maxSessionsPerAddr {
		t.Errorf("%d connections are open", n)
	}
}

// TestIdleConnectionsEndNoSession checks that idle connections at a client's own address replace
// each other, not its session.
func TestIdleConnectionsEndNoSession(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	known, from := calling(a.peer, 3)
	slow := testTiming
	slow.Handshake = time.Hour
	s := startServerTiming(t, slow, b, "", known)
	publish(t, s, stateOf("b", ready("one")))
	peer := b.peer
	peer.Source = from
	c := startClient(t, a.id, testTiming, peer)
	c.awaitState(t, stateOf("b", ready("one")))
	openConnections(t, from, b.peer.Addr, 10*maxSessionsPerAddr)
	publish(t, s, stateOf("b", ready("two")))
	c.awaitState(t, stateOf("b", ready("two")))
	if n := c.count("feed connected"); n != 1 {
		t.Errorf("connected %d times", n)
	}
}

// TestUnknownNodes checks sessions of nodes. A node has no key, so its address identifies it.
// Sessions at other addresses share the limit for strangers.
func TestUnknownNodes(t *testing.T) {
	t.Parallel()
	b := newGateway(t, "b")
	s := startServer(t, b, "lo")
	node := netip.AddrFrom4([4]byte{127, 81, 0, 9})
	s.SetNodes([]netip.Addr{node})
	publishStates(t, s.relay, map[string]RemoteState{"x": {State: stateOf("x", ready("one"))}})
	id := Identity{Cluster: "b", Node: "worker"}
	subscribe := func(source netip.Addr) *testClient {
		peer := b.peer
		peer.Device, peer.Source = "lo", source
		return startClient(t, id, testTiming, peer)
	}
	honest := subscribe(node)
	honest.awaitState(t, stateOf("x", ready("one")))
	// Strangers claim the honest node's name, from more addresses than the limit.
	for i := range maxUnknownSessions + 10 {
		subscribe(netip.AddrFrom4([4]byte{127, 83, 0, byte(1 + i)}))
	}
	strangers := func() (n int) {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		for _, session := range s.sessions {
			if session.remote != node {
				n++
			}
		}
		return n
	}
	await(t, "as many strangers as the limit", func() bool { return strangers() == maxUnknownSessions })
	await(t, "a refusal", func() bool { return s.count(errConnectionLimit.Error()) > 0 })
	if honest.count("feed connected") != 1 {
		t.Error("strangers ended the session of a node")
	}
}
