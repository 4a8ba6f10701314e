package feed

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// idle opens connections to a server from an address and says nothing on them.
func idle(t *testing.T, from netip.Addr, to netip.AddrPort, many int) {
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

func calling(peer Peer, from byte) (Peer, netip.Addr) {
	source := netip.AddrFrom4([4]byte{127, 81, 0, from})
	peer.Addrs = []netip.Addr{source}
	return peer, source
}

// TestIdleHandshakes: whoever opens connections and says nothing keeps nobody else
// out, whether it is a stranger with many addresses or another peer, and at its own
// address keeps out nobody for long.
func TestIdleHandshakes(t *testing.T) {
	t.Parallel()
	a, b, c := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "c")
	knownA, fromA := calling(a.peer, 1)
	knownC, fromC := calling(c.peer, 2)
	patient := fast
	patient.Handshake = time.Hour // an idle handshake never ends by itself
	s := startTimed(t, patient, b, "", knownA, knownC)
	publish(t, s, live("b", ready("one")))
	await(t, "the listener", func() bool {
		conn, err := net.Dial("tcp4", b.peer.Addr.String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for i := range 80 {
		idle(t, netip.AddrFrom4([4]byte{127, 82, 0, byte(1 + i)}), b.peer.Addr, 4)
	}
	idle(t, fromC, b.peer.Addr, 200)
	idle(t, fromA, b.peer.Addr, 200)
	call := b.peer
	call.Source = fromA
	startClient(t, a.id, fast, call).awaitLive(t, live("b", ready("one")))
	n := 0
	s.places.mu.Lock()
	for _, conns := range s.places.taken {
		n += len(conns)
	}
	s.places.mu.Unlock()
	if n > maxStrangers+2*maxPerSource {
		t.Errorf("%d connections that proved nothing are kept", n)
	}
}

// TestNodesThatNobodyKnows: a node of the cluster has no key, so that sessions are
// counted by address, and those at addresses of no node share what is for strangers.
func TestNodesThatNobodyKnows(t *testing.T) {
	t.Parallel()
	b := newGateway(t, "b")
	s := startServer(t, b, "lo")
	node := netip.AddrFrom4([4]byte{127, 81, 0, 9})
	s.SetNodes([]netip.Addr{node})
	relayed := map[string]RemoteState{"x": {Live: live("x", ready("one"))}}
	if err := s.SetRelay(relayed); err != nil {
		t.Fatal(err)
	}
	id := Identity{Cluster: "b", Node: "worker"}
	follow := func(source netip.Addr) *testClient {
		call := b.peer
		call.Device, call.Source = "lo", source
		return startClient(t, id, fast, call)
	}
	honest := follow(node)
	honest.awaitLive(t, live("x", ready("one")))
	// Strangers say the honest node's name, from more addresses than there is place for.
	for i := range maxStrangers + 10 {
		follow(netip.AddrFrom4([4]byte{127, 83, 0, byte(1 + i)}))
	}
	strangers := func() (n int) {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		for open := range s.sessions {
			if open.from != node {
				n++
			}
		}
		return n
	}
	await(t, "strangers as many as there is place for", func() bool { return strangers() == maxStrangers })
	await(t, "a refusal", func() bool { return s.count(errFull.Error()) > 0 })
	if honest.count("feed connected") != 1 {
		t.Error("strangers ended the session of a node")
	}
}
