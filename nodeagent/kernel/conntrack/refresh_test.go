package conntrack

import (
	"testing"
	"time"
)

// TestRefresh disables the gateway of a client that only listens. Data of the server then
// arrives only because the node sends a refresh packet.
func TestRefresh(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp4", "udp4", "tcp6", "udp6"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			s := r.open(network)
			if !s.delivers("first") {
				t.Fatal("the test network does not forward")
			}
			r.move("b")
			r.a.IP("link set hw-wg1 down")
			s.push("lost?")
			if s.receives("lost?", 300*time.Millisecond) {
				t.Fatal("gateway b knows a flow that it never saw")
			}
			before := r.node.flows()
			k := r.syncer()
			k.PathMoved("g2", remotePrefixes)
			if stats := r.node.runDue(k, time.Now()); stats.Sent != 1 || stats.Failed != 0 {
				t.Fatalf("stats %+v, want one refresh packet", stats)
			}
			if !s.arrives("lost?") {
				t.Fatal("no data of the server arrives after the refresh packet")
			}
			_, err := s.client.Write([]byte("and now the client"))
			r.must(err)
			if !s.delivers("more") {
				t.Fatal("the connection does not work in both directions")
			}
			checkUnchanged(t, before, r.node.flows())
		})
	}
}

// TestRefreshWithoutVXLAN checks that refresh packets use VXLAN if the packets of the flow do not. It
// also checks that no refresh packet follows a route to a router that is not a gateway.
func TestRefreshWithoutVXLAN(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp4", "udp4"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			s := r.open(network)
			if !s.delivers("first") {
				t.Fatal("the test network does not forward")
			}
			r.move("b")
			r.a.IP("link set hw-wg1 down")
			r.node.IP("link add eth0 type veth peer name other0", "link set eth0 up", "link set other0 up",
				"route replace 242.2.0.0/16 via 192.0.2.3 dev eth0 onlink")
			s.push("lost?")
			k := r.syncer()
			k.PathMoved("g2", remotePrefixes)
			if stats := r.node.runDue(k, time.Now()); stats.Sent != 1 || stats.Failed != 0 {
				t.Fatalf("stats %+v, want one refresh packet", stats)
			}
			if !s.arrives("lost?") {
				t.Error("no data of the server arrives after the refresh packet")
			}
			r.node.IP("route replace 242.2.0.0/16 via 192.0.2.77 dev eth0 onlink")
			k = r.syncer()
			k.PathMoved("g2", remotePrefixes)
			if stats := r.node.runDue(k, time.Now()); stats.Sent != 0 || stats.Failed != 0 {
				t.Errorf("stats %+v over a router that is no gateway", stats)
			}
		})
	}
}

// checkUnchanged checks that the node's entries were not replaced.
func checkUnchanged(t *testing.T, before, after []Flow) {
	t.Helper()
	ids := map[uint32]Flow{}
	for _, f := range after {
		ids[f.id] = f
	}
	for _, f := range before {
		if g, ok := ids[f.id]; !ok || g.Orig != f.Orig || g.Reply != f.Reply {
			t.Errorf("the node's entry %v became %v", f, g)
		}
	}
}
