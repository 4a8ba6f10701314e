// Package connprobe opens TCP connections to addresses again and again, keeps one to each open, and
// counts what fails. It sends and reads nothing.
package connprobe

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/status"
)

const (
	every = 100 * time.Millisecond // between two new connections to an address
	// timeout is the maximum time of a new connection. It is below the first retransmission of a SYN
	// (1 s, RFC 6298), so that a lost packet is a lost request.
	timeout = 900 * time.Millisecond
	polled  = 100 * time.Millisecond // between two looks at the connection that is kept open
	// Packets of SO_KEEPALIVE show that a connection is broken within dead unanswered seconds.
	probed   = time.Second
	dead     = 5
	reopened = time.Second // between two connections that are kept open
	// receiveBuffer bounds what a server can send, in bytes: nothing reads it.
	receiveBuffer = 4096
)

// Prober probes addresses.
type Prober struct {
	targets []*target
}

// New returns a Prober of addresses, host:port.
func New(addrs []string) *Prober {
	p := &Prober{}
	for _, a := range addrs {
		p.targets = append(p.targets, &target{result: status.Probed{Target: a}})
	}
	return p
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, t := range p.targets {
		all.Go(func() { t.open(ctx) })
		all.Go(func() { t.keep(ctx) })
	}
	all.Wait()
}

// Report returns the counts since the start.
func (p *Prober) Report() []status.Probed {
	out := make([]status.Probed, len(p.targets))
	for i, t := range p.targets {
		t.mu.Lock()
		out[i] = t.result
		if !t.answered.IsZero() {
			out[i].LongestGap = max(out[i].LongestGap, time.Since(t.answered).Microseconds())
		}
		t.mu.Unlock()
	}
	return out
}

type target struct {
	mu       sync.Mutex
	result   status.Probed
	answered time.Time // of the last new connection; zero before the first one
}

// open opens connections and closes them at once.
func (t *target) open(ctx context.Context) {
	d := net.Dialer{Timeout: timeout}
	for {
		conn, err := d.DialContext(ctx, "tcp", t.result.Target)
		if err == nil {
			_ = conn.Close()
		}
		if ctx.Err() != nil {
			return // it may have failed because of that
		}
		now := time.Now()
		t.mu.Lock()
		t.result.Attempts++
		if err != nil {
			t.result.Failed++
			t.result.LastError = err.Error()
		} else {
			if !t.answered.IsZero() {
				t.result.LongestGap = max(t.result.LongestGap, now.Sub(t.answered).Microseconds())
			}
			t.answered = now
		}
		t.mu.Unlock()
		if !wait(ctx, every) {
			return
		}
	}
}

// keep keeps a connection open, and replaces it when it ends.
func (t *target) keep(ctx context.Context) {
	d := net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probed, Interval: probed, Count: dead},
		Control: func(_, _ string, c syscall.RawConn) error {
			return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) })
		},
	}
	for ctx.Err() == nil {
		conn, err := d.DialContext(ctx, "tcp", t.result.Target)
		if err != nil {
			_ = wait(ctx, reopened) // open counts the failure
			continue
		}
		t.note(func(r *status.Probed) { r.Kept++; r.Open = true })
		t.watch(ctx, conn)
		t.note(func(r *status.Probed) { r.Open = false })
		_ = conn.Close()
		_ = wait(ctx, reopened)
	}
}

// watch returns when the connection or ctx has ended.
func (t *target) watch(ctx context.Context, conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	for wait(ctx, polled) {
		var info *unix.TCPInfo
		var failed int
		err := control(raw, func(fd int) (err error) {
			if info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				failed, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			}
			return err
		})
		switch {
		case err != nil:
			return
		case failed != 0:
			t.note(func(r *status.Probed) { r.Broken++; r.LastError = syscall.Errno(failed).Error() })
			return
		case info.State == unix.BPF_TCP_CLOSE:
			t.note(func(r *status.Probed) { r.Broken++; r.LastError = "connection reset" })
			return
		case info.State != unix.BPF_TCP_ESTABLISHED: // CLOSE_WAIT: the server closed it
			t.note(func(r *status.Probed) { r.ClosedByServer++ })
			return
		}
	}
}

func (t *target) note(change func(*status.Probed)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.result)
}

// control runs a function on the file descriptor of a socket.
func control(c syscall.RawConn, do func(fd int) error) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = do(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// wait waits, and returns false if ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
