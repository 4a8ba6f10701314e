package conntrack

import (
	"testing"
	"time"
)

// TestKnock lets the client's gateway fall under a client that only listens:
// what the server says then arrives only because the node knocked.
func TestKnock(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp4", "udp4", "tcp6", "udp6"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(network)
			if !s.told("first") {
				t.Fatal("the test network does not forward")
			}
			r.move("b")
			r.a.IP("link set hw-wg1 down")
			s.push("lost?")
			if s.hears("lost?", 300*time.Millisecond) {
				t.Fatal("gateway b knows a flow that it never saw")
			}
			before := r.node.flows()
			k := r.keeper()
			k.PathMoved("g2", remote)
			if stats := r.node.work(k, time.Now()); stats.Sent != 1 || stats.Failed != 0 {
				t.Fatalf("stats %+v, want one knock", stats)
			}
			if !s.arrives("lost?") {
				t.Fatal("after the knock the server's words do not arrive")
			}
			_, err := s.client.Write([]byte("and now the client"))
			r.must(err)
			if !s.told("more") {
				t.Fatal("the connection does not work in both directions")
			}
			same(t, before, r.node.flows())
		})
	}
}

// same demands that the node's entries are still the same ones.
func same(t *testing.T, before, after []Flow) {
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
