package dns

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// ownAddr gives an address that no other test has, with a port that the kernel
// gives to no client.
func ownAddr() netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{127, 53, byte(rand.N(255)), byte(1 + rand.N(254))})
	return netip.AddrPortFrom(addr, 5353)
}

func TestServe(t *testing.T) {
	t.Parallel()
	addr := ownAddr()
	var mu sync.Mutex
	counted := map[Query]int{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var serving atomic.Int32
	config := Config{Addr: addr, Store: sampleStore(t), Log: slog.New(slog.DiscardHandler), Serving: func(on bool) {
		if on {
			serving.Add(1)
		} else {
			serving.Add(-1)
		}
	}, Count: func(q Query) {
		mu.Lock()
		defer mu.Unlock()
		counted[q]++
	}}
	config.Store.ServeAt([]netip.AddrPort{config.Addr})
	go func() { done <- Serve(ctx, config) }()
	for _, transport := range []string{"udp", "tcp"} {
		r := exchange(t, transport, addr, question(t, cs+" A"))
		if len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != "243.0.0.1" {
			t.Errorf("%s: %v", transport, r)
		}
	}
	r := exchange(t, "udp", addr, question(t, "clusterset.local. NS"))
	if len(r.Extra) == 0 || r.Extra[0].(*dns.A).A.String() != addr.Addr().String() {
		t.Errorf("the name server is not at the address that it answers at: %v", r)
	}
	if serving.Load() != 1 {
		t.Error("queries are answered, and nobody was told")
	}
	malformed(t, addr)
	if r := exchange(t, "udp", addr, question(t, "x."+cs+" A")); r.Rcode != dns.RcodeNameError {
		t.Errorf("after a malformed query: %v", r)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve does not end")
	}
	if serving.Load() != 0 {
		t.Error("queries are no longer answered, and nobody was told")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []Query{{"udp", "A", "NOERROR"}, {"tcp", "A", "NOERROR"}, {"udp", "A", "NXDOMAIN"}} {
		if counted[want] == 0 {
			t.Errorf("%v was not counted", want)
		}
	}
}

// exchange asks until the server is up.
func exchange(t *testing.T, transport string, addr netip.AddrPort, query *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: transport, Timeout: time.Second}
	deadline := time.Now().Add(10 * time.Second)
	for {
		r, _, err := client.Exchange(query, addr.String())
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", transport, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// malformed sends a query whose question is cut off.
func malformed(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(append([]byte{7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 63, 'x')); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 512)
	n, err := conn.Read(raw)
	r := new(dns.Msg)
	if err != nil || r.Unpack(raw[:n]) != nil || r.Rcode != dns.RcodeFormatError || !bytes.Equal(raw[:2], []byte{7, 7}) {
		t.Errorf("a malformed query got %x, %v", raw[:n], err)
	}
}

func TestServeWaitsForItsAddress(t *testing.T) {
	t.Parallel()
	addr := ownAddr()
	taken, err := net.Listen("tcp4", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	logged := make(chan struct{}, 16)
	handler := notifying{slog.NewTextHandler(&log, nil), logged}
	go func() { done <- Serve(ctx, Config{Addr: addr, Store: sampleStore(t), Log: slog.New(handler)}) }()
	<-logged // that it cannot bind
	_ = taken.Close()
	if r := exchange(t, "tcp", addr, question(t, cs+" A")); len(r.Answer) != 1 {
		t.Errorf("got %v", r)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !bytes.Contains(log.Bytes(), []byte("name server does not answer")) {
		t.Errorf("log: %s", log.String())
	}
}

// notifying tells when something was logged.
type notifying struct {
	slog.Handler
	logged chan struct{}
}

func (n notifying) Handle(ctx context.Context, r slog.Record) error {
	err := n.Handler.Handle(ctx, r)
	select {
	case n.logged <- struct{}{}:
	default:
	}
	return err
}
