package connprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/status"
)

// server listens and passes each accepted connection to serve.
func server(t *testing.T, serve func(*net.TCPConn)) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(conn.(*net.TCPConn)) })
		}
	})
	stop = sync.OnceFunc(func() { _ = l.Close(); all.Wait() })
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// drained reads until the client closes.
func drained(conn *net.TCPConn) {
	buf := make([]byte, 1)
	_, _ = conn.Read(buf)
	_ = conn.Close()
}

// until waits until the reports satisfy a condition.
func until(t *testing.T, p *Prober, want func(status.Probed) bool) status.Probed {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); time.Now().Before(end); <-tick.C {
		if r := p.Report()[0]; want(r) {
			return r
		}
	}
	t.Fatalf("timeout: %+v", p.Report())
	return status.Probed{}
}

// TestLate makes the kernel drop SYNs of the prober, which the prober retransmits. The connections
// are late, and none fails.
func TestLate(t *testing.T) {
	t.Parallel()
	// The accept queue has space for one connection (listen(2)). While it is full, the kernel
	// drops further SYNs.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	p := run(t, l.Addr().String())
	// The remote port and the state SYN_SENT in /proc/net/tcp (proc_net_tcp(5)).
	waiting := fmt.Sprintf(":%04X 02 ", l.Addr().(*net.TCPAddr).Port)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		raw, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(raw), waiting) == 2 { // the new connection and the kept connection
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no SYN was dropped:\n%s", raw)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go drained(conn.(*net.TCPConn))
		}
	}()
	r := until(t, p, func(r status.Probed) bool { return r.Attempts > 3 })
	if r.Late == 0 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
}

func run(t *testing.T, addr string) *Prober {
	t.Helper()
	p := New([]string{addr})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// TestProber checks the counts of new connections and failures, and the longest gap while all new
// connections fail.
func TestProber(t *testing.T) {
	t.Parallel()
	addr, stop := server(t, drained)
	p := run(t, addr)
	r := until(t, p, func(r status.Probed) bool { return r.Attempts > 5 && r.Open })
	if r.Failed != 0 || r.Broken != 0 || r.ClosedByServer != 0 || r.KeptOpen != 1 || r.LongestGap <= 0 {
		t.Errorf("%+v", r)
	}
	// Only the listener closes now, because stop waits for the connection that the prober keeps
	// open.
	go stop()
	r = until(t, p, func(r status.Probed) bool { return r.Failed > 5 })
	if r.LongestGap < 5*interval.Microseconds() || r.LastError == "" || !r.Open || r.Broken != 0 {
		t.Errorf("%+v", r)
	}
}

// TestHeldConnections checks that a reset counts as broken, and a close by the server does not. A
// server that sends forever can only fill a small buffer.
func TestHeldConnections(t *testing.T) {
	t.Parallel()
	reset, _ := server(t, func(conn *net.TCPConn) {
		// A reset before the prober sees the connection as established is a failed attempt.
		// So the server resets only the connection that stays open.
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
	})
	if r := until(t, run(t, reset), func(r status.Probed) bool { return r.Broken > 0 }); r.LastError != "connection reset by peer" || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
	closed, _ := server(t, func(conn *net.TCPConn) { _ = conn.Close() })
	if r := until(t, run(t, closed), func(r status.Probed) bool { return r.ClosedByServer > 0 }); r.Broken != 0 {
		t.Errorf("%+v", r)
	}
	var mu sync.Mutex
	most := 0
	endless, _ := server(t, func(conn *net.TCPConn) {
		_ = conn.SetWriteBuffer(4096)
		buf, sent := make([]byte, 1024), 0
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := conn.Write(buf)
			sent += n
			if err != nil {
				mu.Lock()
				most = max(most, sent)
				mu.Unlock()
				_ = conn.Close()
				return
			}
		}
	})
	until(t, run(t, endless), func(status.Probed) bool { mu.Lock(); defer mu.Unlock(); return most > 0 })
	mu.Lock()
	defer mu.Unlock()
	if most > 256<<10 {
		t.Errorf("a server sent %d bytes", most)
	}
}
