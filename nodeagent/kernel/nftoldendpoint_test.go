package kernel

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// TestOldEndpoint checks that a redialled peer stays at the new endpoint, although the remote end
// still sends from the previous one.
func TestOldEndpoint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, left, right, elsewhere, length string }{
		{"IPv4", "192.0.2.1", "192.0.2.2", "198.51.100.2", "/24"},
		{"IPv6", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:2::2", "/64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			left, right := newTestNode(t), newTestNode(t)
			left.ip(t, "link add u0 type veth peer name u0 netns "+right.name)
			// No packet arrives at the new endpoint, as if all were still in flight.
			left.foreign("link add u1 type veth peer name u2", "link set u0 up", "link set u1 up", "route add "+tt.elsewhere+" dev u1",
				"addr add "+tt.left+tt.length+" dev u0 nodad")(t)
			right.foreign("link set u0 up", "addr add "+tt.right+tt.length+" dev u0 nodad")(t)
			left.inside(t, func() { nftApplyTable(t, &nftNS{}, nftSampleTable()) })
			former, there := netip.AddrPortFrom(netip.MustParseAddr(tt.right), 51820), netip.AddrPortFrom(netip.MustParseAddr(tt.elsewhere), 51820)
			leftKey, leftPublic := newKey(t)
			rightKey, rightPublic := newKey(t)
			e, want := gatewayOf(t, left, leftKey, desired.Peer{
				PublicKey: rightPublic, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("241.0.0.2/32")}, Endpoint: former,
			}, "241.0.0.1")
			gatewayOf(t, right, rightKey, desired.Peer{
				PublicKey: leftPublic, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("241.0.0.1/32")},
				Endpoint: netip.AddrPortFrom(netip.MustParseAddr(tt.left), 51820),
			}, "241.0.0.2")
			right.sendUDP(t, "241.0.0.1:9")
			observe := func() (at netip.AddrPort, answers bool, dropped uint64) {
				kind := NewPeers(left.ns)
				have, err := kind.Observe(t.Context())
				if err != nil || len(have) != 1 {
					t.Fatal(have, err)
				}
				counts := map[string]uint64{}
				left.inside(t, func() {
					conn, err := nftables.Dial(0)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if err := nftCountDrops(conn, counts); err != nil {
						t.Fatal(err)
					}
				})
				return have[0].Endpoint, kind.answering[have[0].Key()], counts[desired.DropPrefix+desired.DropOldEndpoint]
			}
			await(t, "a session", func() bool { _, answers, _ := observe(); return answers })
			want.Endpoint = there
			// If the machine stalls for a second, the previous endpoint expires.
			for want.DialCount = 1; ; want.DialCount++ {
				_, _, before := observe()
				if r := e.Once(t.Context(), []desired.Peer{want}, ""); !r.Clean() || len(r.Changed) != 1 {
					t.Fatal(r.Changed, r.Failed)
				}
				var at netip.AddrPort
				await(t, "packets from the previous endpoint", func() bool {
					var dropped uint64
					at, _, dropped = observe()
					return at != there || dropped >= before+20
				})
				if at == there {
					break
				}
				if want.DialCount == 10 {
					t.Fatalf("packets from %s move the peer back", at)
				}
			}
			await(t, "the previous endpoint, which is not blocked permanently", func() bool { at, _, _ := observe(); return at == former })
		})
	}
}

// inside calls do in the namespace.
func (w *testNode) inside(t *testing.T, do func()) {
	t.Helper()
	if err := w.ns.inside(func() error { do(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// sendUDP sends a datagram each 2 ms until the test ends.
func (w *testNode) sendUDP(t *testing.T, to string) {
	t.Helper()
	var conn net.Conn
	w.inside(t, func() {
		var err error
		if conn, err = net.Dial("udp", to); err != nil {
			t.Fatal(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for tick := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			_, _ = conn.Write([]byte("still here")) // refused, as no process listens
		}
	}()
	t.Cleanup(func() { stop(); <-ended; _ = conn.Close() })
}
