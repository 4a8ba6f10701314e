package traffic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netspace"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	want := message{who: "g1/caller", mode: push, seq: 1 << 40}
	got, err := decode(want.encode())
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	spoiled := want.encode()
	spoiled[3]++
	if _, err := decode(spoiled); !errors.Is(err, errNoMessage) {
		t.Errorf("a spoiled mark: %v", err)
	}
	if _, err := decode(want.encode()[:size-1]); !errors.Is(err, errNoMessage) {
		t.Errorf("a short message: %v", err)
	}
}

// TestHeldNoticesLoss shows that a message that is missing ends the connection's good name.
func TestHeldNoticesLoss(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		defer b.Close()
		for _, seq := range []uint64{0, 1, 3} {
			_, _ = b.Write(message{who: "s", mode: push, seq: seq}.encode())
		}
	}()
	h := &Held{}
	for seq := range uint64(2) {
		if err := h.next(a, seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.next(a, 2); !errors.Is(err, errOrder) {
		t.Errorf("a message was skipped: %v", err)
	}
	if got := h.Counts().OK; got != 2 {
		t.Errorf("counted %d messages", got)
	}
}

// pod makes a namespace of its own with a server in it.
func pod(t *testing.T, seen func(string, string, netip.Addr)) (Pod, *Server) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	dir := t.TempDir()
	p := Pod{Name: "g1/pod", Path: filepath.Join(dir, "pod")}
	if err := netspace.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netspace.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := netspace.Create(p.Path); err != nil {
		t.Fatal(err)
	}
	s, err := Serve(p, seen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return p, s
}

// TestFlows runs every kind of traffic against a server, and against none.
func TestFlows(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := map[string]netip.Addr{}
	p, server := pod(t, func(caller, server string, addr netip.Addr) {
		mu.Lock()
		defer mu.Unlock()
		from[caller+" "+server] = addr
	})
	localhost := netip.MustParseAddr("127.0.0.1")
	tcp, udp := netip.AddrPortFrom(localhost, TCPPort), netip.AddrPortFrom(localhost, UDPPort)
	died := make(chan string, 10)
	flows := []Flow{
		&Calls{From: p, To: tcp}, &Calls{From: p, To: udp, UDP: true}, &Calls{From: p, To: tcp, Bulk: true}, &Datagrams{From: p, To: udp},
	}
	for _, kind := range []string{Busy, Silent, Idle} {
		flows = append(flows, &Held{From: p, To: tcp, Kind: kind, Died: func(name string, _ error) { died <- name }})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, f := range flows {
		group.Go(func() { f.Run(ctx) })
	}
	for _, f := range flows {
		limit, stop := context.WithTimeout(ctx, 20*time.Second)
		if err := f.Back(limit); err != nil {
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
		if err := f.Back(limit); err == nil {
			t.Errorf("%s works without a server", f.Name())
		}
		stop()
	}
	cancel()
	group.Wait()
}

// TestRefusedTells shows that an answer to a forbidden call is told.
func TestRefusedTells(t *testing.T) {
	t.Parallel()
	p, _ := pod(t, func(string, string, netip.Addr) {})
	reached := make(chan string, 100)
	r := &Refused{From: p, To: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), TCPPort), Reached: func(name string) { reached <- name }}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { r.Run(ctx) })
	select {
	case <-reached:
	case <-time.After(10 * time.Second):
		t.Error("nothing was told")
	}
	cancel()
	group.Wait()
}
