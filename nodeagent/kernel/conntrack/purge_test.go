package conntrack

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPurge starts a pod's connection at gateway b with a source port that another pod's
// connection had at gateway a. Gateway a did not see the end of that connection. When the path
// returns to a, the new connection survives only if a purged the old entry.
func TestPurge(t *testing.T) {
	t.Parallel()
	for _, purges := range []bool{true, false} {
		name := map[bool]string{true: "purged", false: "control"}[purges]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestNetwork(t)
			r.pod.IP("addr add 10.7.1.6/24 dev eth0")
			dead := r.openFrom("10.7.1.5:40000")
			if !dead.exchange(testTimeout) {
				t.Fatal("the test network does not forward")
			}
			r.node.IP("link set pod0 down") // no gateway sees the end
			r.far.IP("link set srv0 down")
			dead.abort()
			r.node.IP("link set pod0 up")
			r.far.IP("link set srv0 up")
			r.move("b")
			k := r.syncer()
			begin := time.Now()
			k.LinkReleased("g2", remotePrefixes)
			living := r.openFrom("10.7.1.6:40000")
			if !living.exchange(testTimeout) {
				t.Fatal("no connection through gateway b")
			}
			if n := k.Stats().Purged; n != 0 {
				t.Fatalf("purged %d flows too early", n)
			}
			// Simulate a minute: the entry's remaining time is 60 s less than the timeout of a
			// new packet.
			r.a.sysctl("netfilter/nf_conntrack_tcp_timeout_established", "432060")
			if purges {
				if n := r.a.runDue(k, begin.Add(16*time.Second)).Purged; n != 1 {
					t.Fatalf("purged %d flows, want 1: the ended one", n)
				}
			}
			r.move("a")
			timeout := testTimeout
			if !purges {
				timeout = time.Second // lost packets do not arrive later
			}
			if survives := living.exchange(timeout); survives != purges {
				t.Errorf("the live connection survives: %v, want %v", survives, purges)
			}
		})
	}
}

// connection is a connection with both of its ends.
type connection struct {
	client, server net.Conn
}

func (r *testNetwork) openFrom(source string) *connection {
	r.t.Helper()
	var listener net.Listener
	var err error
	r.server.Inside(func() { listener, err = net.Listen("tcp4", service("tcp4", backendIP, backendIP6, backendPort)) })
	r.must(err)
	defer listener.Close()
	k := &connection{}
	r.pod.Inside(func() {
		dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))}
		// Dial in the calling goroutine, which is in the namespace. IPv4 has no second address
		// to try.
		k.client, err = dialer.DialContext(context.Background(), "tcp4", service("tcp4", vipIP, vipIP6, servicePort))
	})
	r.must(err)
	r.t.Cleanup(func() { k.client.Close() })
	k.server, err = listener.Accept()
	r.must(err)
	r.t.Cleanup(func() { k.server.Close() })
	return k
}

// abort resets the connection at both ends at once.
func (k *connection) abort() {
	_ = k.client.(*net.TCPConn).SetLinger(0)
	_ = k.client.Close()
	_ = k.server.(*net.TCPConn).SetLinger(0)
	_ = k.server.Close()
}

// exchange reports whether a packet of the client arrives, and the server's reply too.
func (k *connection) exchange(timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	_ = k.client.SetDeadline(deadline)
	_ = k.server.SetDeadline(deadline)
	if _, err := k.client.Write([]byte("x")); err != nil {
		return false
	}
	buffer := make([]byte, 8)
	if n, err := k.server.Read(buffer); err != nil || n != 1 {
		return false
	}
	if _, err := k.server.Write([]byte("y")); err != nil {
		return false
	}
	n, err := k.client.Read(buffer)
	return err == nil && n == 1
}

func TestStale(t *testing.T) {
	t.Parallel()
	times := timeouts{established: 432000 * time.Second, udp: 30 * time.Second, stream: 120 * time.Second}
	pod, service := netip.MustParseAddrPort("10.7.1.5:4000"), netip.MustParseAddrPort("242.2.0.32:80")
	egress := netip.MustParseAddrPort("242.1.0.1:4000")
	flow := func(edit func(*Flow)) *Flow {
		f := &Flow{
			Protocol: unix.IPPROTO_TCP, State: tcpEstablished, ExpiresIn: 431000 * time.Second,
			Orig: Tuple{pod, service}, Reply: Tuple{service, egress},
		}
		edit(f)
		return f
	}
	tests := []struct {
		name string
		edit func(*Flow)
		want bool
	}{
		{"translated and quiet since", func(*Flow) {}, true},
		{"a packet after the path moved", func(f *Flow) { f.ExpiresIn = 431995 * time.Second }, false},
		{"with its own source", func(f *Flow) { f.Reply.To = pod }, false},
		{"ends by itself soon", func(f *Flow) { f.State = tcpFinWait }, false},
		{"quiet UDP", func(f *Flow) { f.Protocol, f.ExpiresIn = unix.IPPROTO_UDP, time.Second }, true},
		{"UDP stream in use", func(f *Flow) {
			f.Protocol, f.Status, f.ExpiresIn = unix.IPPROTO_UDP, statusAssured, 119*time.Second
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := isPurgeable(flow(tt.edit), times, 13*time.Second); got != tt.want {
				t.Errorf("stale %v, want %v", got, tt.want)
			}
		})
	}
}
