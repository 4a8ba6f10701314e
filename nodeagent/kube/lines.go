package kube

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// As client-go has them.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// lines are the connections to the API server that are open.
type lines struct {
	mu   sync.Mutex
	open map[*line]struct{}
}

type line struct {
	net.Conn
	of *lines
}

func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	out := &line{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[out] = struct{}{}
	return out, nil
}

// Close ends the connection and forgets it.
func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// Leave ends the connections to the server whose own address is none of this host's any
// more, and gives how many there were. Nothing arrives on them, and without this it
// takes most of a minute until they are found dead: just when the server has to tell
// that the node has another address.
func (c *Client) Leave(held func(netip.Addr) bool) int {
	var gone []*line
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
