package control

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// outletLimit is the maximum time for a condition on a slow machine.
const outletLimit = 30 * time.Second

// TestOutletPortInUse checks that the listener reports the port of another process, and tries it
// again.
func TestOutletPortInUse(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := func() { _ = listener.Close() }
	defer free()
	addr := listener.Addr().String()
	listeners := NewHTTPListeners([]string{addr}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		listeners[0].run(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
		close(done)
	}()
	await(t, "an error for the used port", func() bool {
		s := listeners.States()
		return len(s) == 1 && s[0].Name == "metrics on "+addr && !s[0].OK && strings.Contains(s[0].Error, "address already in use")
	})
	free()
	await(t, "a response", func() bool {
		resp, err := http.Get("http://" + addr + "/")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		return err == nil && string(raw) == "here"
	})
	if s := listeners.States(); len(s) != 0 {
		t.Errorf("resolved error still reported: %v", s)
	}
	cancel()
	select {
	case <-done:
	case <-time.After(outletLimit):
		t.Fatal("Run does not return")
	}
	if again, err := net.Listen("tcp", addr); err != nil {
		t.Errorf("the address is still in use: %v", err)
	} else {
		_ = again.Close()
	}
}

// TestOutletAddresses checks that net.Listen accepts the addresses of the DaemonSets, which have
// brackets in both families. It must listen only on the given address.
func TestOutletAddresses(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"[127.0.0.1]:0", "127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil && addr == "[::1]:0" {
			continue // a host without IPv6
		}
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("%s: listens on %s", addr, ip)
		}
		_ = l.Close()
	}
}

func await(t *testing.T, what string, good func() bool) {
	t.Helper()
	for end := time.Now().Add(outletLimit); !good(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}
