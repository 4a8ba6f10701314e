// Package connprobe probes addresses by repeated TCP connections. It keeps one connection to each
// address open and counts failures. It sends and reads no data.
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
	interval = 100 * time.Millisecond // between two new connections to an address
	// lateAfter is the time after which a new connection is late. It is below the first
	// retransmission of a SYN (1 s, RFC 6298): a late connection lost a packet of its
	// handshake.
	lateAfter = 900 * time.Millisecond
	// timeout is the maximum time of a new connection. It is above the second retransmission of
	// a SYN (3 s).
	timeout      = 3500 * time.Millisecond
	pollInterval = 100 * time.Millisecond // between two checks of the kept connection
	// TCP keepalive probes end a connection after keepAliveCount probes without a reply, one
	// per keepAliveInterval.
	keepAliveInterval = time.Second
	keepAliveCount    = 5
	reopenDelay       = time.Second // before the next kept connection is opened
	// receiveBuffer limits the bytes that a server can send. The prober reads nothing.
	receiveBuffer = 4096
)

// Prober probes addresses.
type Prober struct {
	targets []*target
}

// New returns a Prober of addresses (host:port).
func New(addrs []string) *Prober {
	p := &Prober{}
	for _, a := range addrs {
		p.targets = append(p.targets, &target{result: status.Probed{Target: a}})
	}
	return p
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, t := range p.targets {
		all.Go(func() { t.open(ctx) })
		all.Go(func() { t.keepOpen(ctx) })
	}
	all.Wait()
}

// Report returns the counts since the start.
func (p *Prober) Report() []status.Probed {
	out := make([]status.Probed, len(p.targets))
	for i, t := range p.targets {
		t.mu.Lock()
		out[i] = t.result
		if !t.lastConnected.IsZero() {
			out[i].LongestGap = max(out[i].LongestGap, time.Since(t.lastConnected).Microseconds())
		}
		t.mu.Unlock()
	}
	return out
}

type target struct {
	mu            sync.Mutex
	result        status.Probed
	lastConnected time.Time // of the last established connection; zero = none
}

// open repeatedly opens a connection and closes it at once.
func (t *target) open(ctx context.Context) {
	d := net.Dialer{Timeout: timeout}
	for {
		start := time.Now()
		conn, err := d.DialContext(ctx, "tcp", t.result.Target)
		if err == nil {
			_ = conn.Close()
		}
		if ctx.Err() != nil {
			return // the failure may be due to ctx
		}
		now := time.Now()
		t.mu.Lock()
		t.result.Attempts++
		if err != nil {
			t.result.Failed++
			t.result.LastError = err.Error()
		} else {
			if now.Sub(start) >= lateAfter {
				t.result.Late++
			}
			if !t.lastConnected.IsZero() {
				gap := now.Sub(t.lastConnected).Microseconds()
				t.result.LongestGap = max(t.result.LongestGap, gap)
			}
			t.lastConnected = now
		}
		t.mu.Unlock()
		if !wait(ctx, interval) {
			return
		}
	}
}

// keepOpen keeps a connection open. After its end it opens the next connection.
func (t *target) keepOpen(ctx context.Context) {
	d := net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveInterval, Interval: keepAliveInterval, Count: keepAliveCount},
		Control: func(_, _ string, c syscall.RawConn) error {
			return control(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) })
		},
	}
	for ctx.Err() == nil {
		conn, err := d.DialContext(ctx, "tcp", t.result.Target)
		if err != nil {
			_ = wait(ctx, reopenDelay) // open counts such failures
			continue
		}
		t.record(func(r *status.Probed) { r.KeptOpen++; r.Open = true })
		t.watch(ctx, conn)
		t.record(func(r *status.Probed) { r.Open = false })
		_ = conn.Close()
		_ = wait(ctx, reopenDelay)
	}
}

// watch waits until the connection has ended or ctx is done, and counts how it ended.
func (t *target) watch(ctx context.Context, conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	for wait(ctx, pollInterval) {
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
			t.record(func(r *status.Probed) { r.Broken++; r.LastError = syscall.Errno(failed).Error() })
			return
		case info.State == unix.BPF_TCP_CLOSE:
			t.record(func(r *status.Probed) { r.Broken++; r.LastError = "connection reset" })
			return
		case info.State != unix.BPF_TCP_ESTABLISHED: // CLOSE_WAIT: the server closed it
			t.record(func(r *status.Probed) { r.ClosedByServer++ })
			return
		}
	}
}

func (t *target) record(change func(*status.Probed)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.result)
}

// control calls do with the file descriptor of a socket.
func control(c syscall.RawConn, do func(fd int) error) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = do(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// wait waits for d. It returns false if ctx is done.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
