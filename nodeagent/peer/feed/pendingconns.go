package feed

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxPerSource bounds the connections from one address that proved nothing yet.
	maxPerSource = 8
	// maxStrangers bounds those from all addresses together that are nobody's.
	maxStrangers = 64
)

// pendingConns are for connections that did not prove yet who is at the other end. Each
// known address has its own, and the oldest there gives way, so that who opens many
// and says nothing keeps out neither others nor, for longer than a moment, whoever
// else is at its address. Addresses that nobody knows share some.
type pendingConns struct {
	known func(netip.Addr) bool

	mu        sync.Mutex
	taken     map[netip.Addr][]net.Conn // oldest first
	strangers map[net.Conn]bool
}

// source is the address that a connection comes from.
func source(conn net.Conn) netip.Addr {
	if from, is := conn.RemoteAddr().(*net.TCPAddr); is {
		return from.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// enter takes a place. It reports whether there was one.
func (p *pendingConns) enter(conn net.Conn) bool {
	from := source(conn)
	known := p.known(from)
	p.mu.Lock()
	defer p.mu.Unlock()
	if same := p.taken[from]; len(same) >= maxPerSource {
		_ = same[0].Close()
		p.drop(same[0], from)
	}
	if !known {
		if len(p.strangers) >= maxStrangers {
			return false
		}
		p.strangers[conn] = true
	}
	p.taken[from] = append(p.taken[from], conn)
	return true
}

// leave gives the place back, if the connection still has it.
func (p *pendingConns) leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(conn, source(conn))
}

func (p *pendingConns) drop(conn net.Conn, from netip.Addr) {
	delete(p.strangers, conn)
	rest := slices.DeleteFunc(p.taken[from], func(other net.Conn) bool { return other == conn })
	if p.taken[from] = rest; len(rest) == 0 {
		delete(p.taken, from)
	}
}
