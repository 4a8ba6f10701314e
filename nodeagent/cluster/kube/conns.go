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

// TCP keepalive closes a connection to a silent server long before HTTP/2 does (45 s). An address
// of this host or a route to the server may have disappeared without a notification.
const (
	dialTimeout       = 10 * time.Second
	userTimeout       = 10 * time.Second
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
)

// connTracker tracks the open connections to the API server.
type connTracker struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	tracker *connTracker
}

func (t *connTracker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// TCP_USER_TIMEOUT limits how long sent data may stay unacknowledged. It also overrides the
	// number of unanswered keepalive probes (tcp(7)).
	conn, err := (&net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval},
		ControlContext: func(_ context.Context, _, address string, raw syscall.RawConn) error {
			var sockErr error
			err := raw.Control(func(fd uintptr) {
				sockErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
			})
			if err := errors.Join(err, sockErr); err != nil {
				return fmt.Errorf("prepare connection to %s: %w", address, err)
			}
			return nil
		},
	}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	out := &trackedConn{Conn: conn, tracker: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[out] = struct{}{}
	return out, nil
}

// Close closes the connection and removes it from the tracker.
func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.open, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}

// CloseStaleConns closes the connections whose local address is no longer on this host and returns
// their number. Such connections receive no more data. Keepalive would detect them only after ten
// seconds, but the agent needs the node's new address from the server before that.
func (c *Client) CloseStaleConns(isLocal func(netip.Addr) bool) int {
	var stale []*trackedConn
	c.conns.mu.Lock()
	for conn := range c.conns.open {
		if tcp, ok := conn.LocalAddr().(*net.TCPAddr); ok && !isLocal(tcp.AddrPort().Addr().Unmap().WithZone("")) {
			stale = append(stale, conn)
		}
	}
	c.conns.mu.Unlock()
	for _, conn := range stale {
		_ = conn.Close() // readers and writers get an error
	}
	return len(stale)
}
