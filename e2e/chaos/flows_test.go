package main

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/e2e/traffic"
	"hawser.dev/hawser/lab/netnsexec"
)

// newPod creates a network namespace with a server in it.
func newPod(t *testing.T, seen func(traffic.Seen)) (pod, *traffic.Server) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	dir := t.TempDir()
	p := pod{name: "g1/pod", net: filepath.Join(dir, "pod")}
	if err := netnsexec.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netnsexec.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := netnsexec.Create(p.net); err != nil {
		t.Fatal(err)
	}
	s, err := traffic.Serve(p.socket(), p.name, seen, tcpPort, udpPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return p, s
}

// TestFlows runs every kind of traffic with a server, and without one.
func TestFlows(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := map[string]netip.Addr{}
	p, server := newPod(t, func(seen traffic.Seen) {
		mu.Lock()
		defer mu.Unlock()
		from[seen.Caller+" "+seen.Server] = seen.From
	})
	localhost := netip.MustParseAddr("127.0.0.1")
	tcp, udp := netip.AddrPortFrom(localhost, tcpPort), netip.AddrPortFrom(localhost, udpPort)
	died := make(chan string, 10)
	flows := []flow{
		&calls{from: p, to: tcp}, &calls{from: p, to: udp, udp: true}, &calls{from: p, to: tcp, burst: true}, &datagrams{from: p, to: udp},
	}
	for _, kind := range []traffic.Kind{traffic.Busy, traffic.ServerPush, traffic.Idle} {
		flows = append(flows, &longLived{from: p, to: tcp, kind: kind, died: func(name string, _ error) { died <- name }})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, f := range flows {
		group.Go(func() { f.run(ctx) })
	}
	for _, f := range flows {
		limit, stop := context.WithTimeout(ctx, 20*time.Second)
		if err := f.awaitRecovery(limit); err != nil {
			t.Error(err)
		}
		stop()
	}
	mu.Lock()
	if got := from["g1/pod g1/pod"]; got != localhost {
		t.Errorf("the server saw %v", got)
	}
	mu.Unlock()
	if len(died) > 0 {
		t.Errorf("%s died", <-died)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range flows[:4] {
		limit, stop := context.WithTimeout(ctx, 600*time.Millisecond)
		if err := f.awaitRecovery(limit); err == nil {
			t.Errorf("%s works without a server", f)
		}
		stop()
	}
	cancel()
	group.Wait()
}

// TestRefusedReports tests that an answer to a forbidden call is reported.
func TestRefusedReports(t *testing.T) {
	t.Parallel()
	p, _ := newPod(t, func(traffic.Seen) {})
	reached := make(chan string, 100)
	r := &refused{reached: func(name string) { reached <- name }}
	r.from, r.to = p, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), tcpPort)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { r.run(ctx) })
	select {
	case <-reached:
	case <-time.After(10 * time.Second):
		t.Error("the answer was not reported")
	}
	cancel()
	group.Wait()
}
