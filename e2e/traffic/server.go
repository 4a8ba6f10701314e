package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Server answers all traffic. It echoes datagrams. The first message of a TCP connection selects
// the server's mode. Server echoes other input too, for nc and similar tools.
type Server struct {
	name      string
	socket    Socket
	onRequest func(Seen)
	closers   []io.Closer // listeners and packet sockets
	group     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// Seen describes a caller as the server sees it.
type Seen struct {
	Caller string // name that the caller sent
	Server string
	From   netip.Addr
	Begun  time.Time // of a Call: its start, by the caller's clock
}

// Serve opens ports on all addresses of a network namespace, TCP and UDP each, and answers
// on them. It calls onRequest, which may be nil, for the first message of each connection and for
// every datagram.
func Serve(at Socket, name string, onRequest func(Seen), ports ...int) (*Server, error) {
	s := &Server{name: name, socket: at, onRequest: onRequest, conns: map[net.Conn]bool{}}
	for _, port := range ports {
		streams, packets, err := at.listen(port)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve as %s: %w", name, err), s.Close())
		}
		raiseReadBuffer(packets)
		s.closers = append(s.closers, streams, packets)
		s.group.Go(func() { s.accept(streams) })
		s.group.Go(func() { s.packets(packets) })
	}
	return s, nil
}

// Close closes the ports and all connections.
func (s *Server) Close() error {
	var errs []error
	for _, port := range s.closers {
		errs = append(errs, port.Close())
	}
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
	return errors.Join(errs...)
}

func (s *Server) packets(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP message about an earlier answer
		}
		if m, _, err := decode(buffer[:n]); err == nil && s.onRequest != nil {
			s.onRequest(Seen{Caller: m.who, Server: s.name, From: addressOf(from)})
		}
		_, _ = conn.WriteTo(buffer[:n], from) // a datagram lost here counts as lost on the path
	}
}

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client closed the connection before Accept
		}
		if !s.track(conn) {
			return
		}
		s.group.Go(func() {
			s.answer(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// track registers a connection for Close. It reports false, and closes the connection, if the
// server is closed.
func (s *Server) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) answer(conn net.Conn) {
	var err error
	if !control(conn, func(fd int) { err = s.socket.prepare(fd) }) || err != nil {
		return
	}
	messages := bufio.NewReader(conn)
	for n := range len(Mark) {
		start, err := messages.Peek(n + 1)
		if err != nil {
			return
		}
		if start[n] != Mark[n] {
			_, _ = io.Copy(conn, messages) // until either end closes
			return
		}
	}
	first, err := receive(messages)
	if err != nil {
		return
	}
	if s.onRequest != nil {
		s.onRequest(Seen{Caller: first.who, Server: s.name, From: addressOf(conn.RemoteAddr()), Begun: time.Unix(0, int64(first.arg))})
	}
	answer := message{who: s.name, mode: first.mode, body: []byte(s.name)}.encode()
	if first.mode == modeBurst {
		for seq := range uint64(burst) {
			answer = append(answer, message{who: s.name, mode: modeBurst, seq: seq}.encode()...)
		}
	}
	if _, err := conn.Write(answer); err != nil {
		return
	}
	switch first.mode {
	case modeEcho:
		s.echo(messages, conn)
	case modeCount:
		s.count(messages, conn)
	case modePush:
		// Reading notices when the caller closes the connection.
		go func() { _, _ = receive(messages); _ = conn.Close() }()
		s.push(conn, time.Duration(first.arg))
	}
}

func (s *Server) echo(messages io.Reader, conn net.Conn) {
	for {
		m, err := receive(messages)
		if err != nil {
			return
		}
		m.who = s.name
		if _, err := conn.Write(m.encode()); err != nil {
			return
		}
	}
}

// count counts numbered messages. On modeReport it returns the count and the longest time
// between two messages.
func (s *Server) count(messages io.Reader, conn net.Conn) {
	var got uint64
	var longest time.Duration
	var last time.Time
	for {
		m, err := receive(messages)
		if err != nil {
			return
		}
		if !last.IsZero() {
			longest = max(longest, time.Since(last))
		}
		last = time.Now()
		switch {
		case m.mode == modeReport:
			_, err = conn.Write(message{who: s.name, mode: modeReport, seq: got, arg: uint64(longest)}.encode())
		case m.seq != got:
			return // a message is missing: the client sees the connection closed
		default:
			got++
		}
		if err != nil {
			return
		}
	}
}

// push sends numbers until the connection ends.
func (s *Server) push(conn net.Conn, interval time.Duration) {
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for seq := uint64(0); ; seq++ {
		if _, err := conn.Write(message{who: s.name, mode: modePush, seq: seq}.encode()); err != nil {
			return
		}
		<-tick.C
	}
}

func addressOf(addr net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
