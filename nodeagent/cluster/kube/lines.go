package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A server that is silent is asked by the kernel, and a connection on which it does not
// answer is given up, long before HTTP/2 notices (45 s): an address of this host or a
// way to the server may have gone without a sign.
const (
	dialTimeout       = 10 * time.Second
	deadTime          = 10 * time.Second
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
)

// connTracker are the connections to the API server that are open.
type connTracker struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	of *connTracker
}

func (l *connTracker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// TCP_USER_TIMEOUT bounds both what waits for its acknowledgement and, in place of their
	// number, questions without an answer (tcp(7)).
	conn, err := (&net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval},
		ControlContext: func(_ context.Context, _, address string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadTime.Milliseconds()))
			})
			if err := errors.Join(err, failed); err != nil {
				return fmt.Errorf("prepare connection to %s: %w", address, err)
			}
			return nil
		},
	}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	out := &trackedConn{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[out] = struct{}{}
	return out, nil
}

// Close ends the connection and forgets it.
func (l *trackedConn) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// CloseStaleConns ends the connections to the server whose own address is none of this host's any
// more, and gives how many there were. Nothing arrives on them, and without this it
// takes ten seconds and more until they are found dead: just when the server has to tell
// that the node has another address.
func (c *Client) CloseStaleConns(held func(netip.Addr) bool) int {
	var gone []*trackedConn
	c.lines.mu.Lock()
	for l := range c.lines.open {
		if tcp, ok := l.LocalAddr().(*net.TCPAddr); ok && !held(tcp.AddrPort().Addr().Unmap().WithZone("")) {
			gone = append(gone, l)
		}
	}
	c.lines.mu.Unlock()
	for _, l := range gone {
		_ = l.Close() // its readers and writers notice
	}
	return len(gone)
}
