package kube

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
)

// TestCloseStaleConns checks that connections from an address of the host stay, others are closed,
// and the watches continue over new connections.
func TestCloseStaleConns(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, node("gateway", "203.0.113.1"), service("sample", "web"), slice("sample", "web", "a", "10.7.0.1"))
	r := start(t, server, nil)
	r.SetFabric(testFabric(nil))
	r.await(t, "the server", serves("sample", "web", "10.7.0.1"))
	var own []netip.Addr
	if n := r.client.CloseStaleConns(func(a netip.Addr) bool { own = append(own, a); return true }); n != 0 || len(own) == 0 || !own[0].IsLoopback() {
		t.Fatalf("closed %d of the connections from %v", n, own)
	}
	if n := r.client.CloseStaleConns(func(netip.Addr) bool { return false }); n != len(own) {
		t.Errorf("closed %d of the connections from %v", n, own)
	}
	server.Put(t, slice("sample", "web", "a", "10.7.0.2"))
	r.await(t, "a change over a new connection", func(s facts.State) bool { return serves("sample", "web", "10.7.0.2")(s) && s.Err == nil })
}

// TestSilentServer checks the socket options: the kernel probes a silent server and closes the
// connection in a quarter of the time of HTTP/2.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := (&connTracker{open: map[*trackedConn]struct{}{}}).dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*trackedConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []struct {
		name     string
		of, want int
	}{
		{"keepalive", unix.SO_KEEPALIVE, 1},
		{"idle time, s", unix.TCP_KEEPIDLE, 5},
		{"interval, s", unix.TCP_KEEPINTVL, 2},
		{"user timeout, ms", unix.TCP_USER_TIMEOUT, 10_000},
	} {
		level := unix.IPPROTO_TCP
		if option.of == unix.SO_KEEPALIVE {
			level = unix.SOL_SOCKET
		}
		var have int
		var failed error
		if err := raw.Control(func(fd uintptr) { have, failed = unix.GetsockoptInt(int(fd), level, option.of) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if have != option.want {
			t.Errorf("%s: %d, want %d", option.name, have, option.want)
		}
	}
}
