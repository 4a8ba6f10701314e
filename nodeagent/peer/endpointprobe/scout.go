package endpointprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// replyTimeout is how long after a question its answer is taken.
	replyTimeout = 3 * time.Second
	// longest is more than the largest answer, in bytes.
	longest = 512
	// header is that of UDP, in bytes.
	header = 8
)

// Request asks one gateway at one address.
type Request struct {
	Keys Keys
	From uint16         // UDP port of this gateway's own device
	To   netip.AddrPort // of the other end's
}

// Client sends questions and hears the answers. Its sockets are raw, as the ports
// belong to the tunnels, and open only while an answer may come. Its methods may
// be called from any goroutine.
type Client struct {
	log *slog.Logger

	mu      sync.Mutex
	sockets map[bool]*net.IPConn  // by whether it is IPv6
	open    map[uint32]pending    // by index
	idle    *time.Timer           // closes the sockets
	calls   map[*net.UDPConn]bool // questions of IKE
	readers sync.WaitGroup
}

// pending is a question that may be answered yet.
type pending struct {
	*handshake
	from   uint16
	sent   time.Time
	answer func()
}

// New makes a scout.
func New(log *slog.Logger) *Client {
	return &Client{log: log, open: map[uint32]pending{}, sockets: map[bool]*net.IPConn{}, calls: map[*net.UDPConn]bool{}}
}

// ProbeWireGuard sends a question. answered is called at most once, by another goroutine,
// when the gateway answers.
func (s *Client) ProbeWireGuard(q Request, answered func()) error {
	h, raw, err := newInitiation(q.Keys)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for index, p := range s.open {
		if now.Sub(p.sent) > replyTimeout {
			delete(s.open, index)
		}
	}
	conn, err := s.socket(q.To.Addr().Is6())
	if err != nil {
		return err
	}
	s.open[h.index] = pending{handshake: h, from: q.From, sent: now, answer: answered}
	to := &net.IPAddr{IP: q.To.Addr().AsSlice(), Zone: q.To.Addr().Zone()}
	if _, err := conn.WriteToIP(datagram(q.From, q.To.Port(), raw), to); err != nil {
		return fmt.Errorf("ask gateway at %s: %w", q.To, err)
	}
	return nil
}

// Close ends all questions and waits for what may be called.
func (s *Client) Close() {
	s.mu.Lock()
	s.closeSockets()
	for conn := range s.calls {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.readers.Wait()
}

// closeSockets closes the sockets; s.mu is held.
func (s *Client) closeSockets() {
	clear(s.open)
	for six, conn := range s.sockets {
		_ = conn.Close()
		delete(s.sockets, six)
	}
}

// socket opens what a question of the family needs; s.mu is held.
func (s *Client) socket(six bool) (*net.IPConn, error) {
	if s.idle == nil {
		s.idle = time.AfterFunc(replyTimeout, s.closeIfIdle)
	}
	s.idle.Reset(replyTimeout)
	if conn := s.sockets[six]; conn != nil {
		return conn, nil
	}
	network := "ip4:udp"
	if six {
		network = "ip6:udp"
	}
	conn, err := net.ListenIP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("open socket for questions: %w", err)
	}
	if err := prepare(conn, six); err != nil {
		return nil, errors.Join(fmt.Errorf("open socket for questions: %w", err), conn.Close())
	}
	s.sockets[six] = conn
	s.readers.Go(func() {
		buffer := make([]byte, longest)
		for {
			n, _, err := conn.ReadFromIP(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond) // such as ECONNREFUSED from an ICMP error: pass, but never spin
				continue
			}
			if answer := s.matchReply(buffer[:n]); answer != nil {
				answer()
			}
		}
	})
	return conn, nil
}

func (s *Client) closeIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeSockets()
}

// matchReply gives what to call when a datagram is the answer to a question.
func (s *Client) matchReply(raw []byte) func() {
	if len(raw) < header {
		return nil
	}
	index, ok := replyIndex(raw[header:])
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.open[index]
	if !known || binary.BigEndian.Uint16(raw[2:]) != p.from || !p.verifies(raw[header:]) {
		return nil
	}
	delete(s.open, index)
	return p.answer
}

// datagram puts the header of UDP before a message. Its checksum stays 0, which
// means none over IPv4; over IPv6 the kernel fills it in.
func datagram(from, to uint16, message []byte) []byte {
	out := make([]byte, header, header+len(message))
	binary.BigEndian.PutUint16(out, from)
	binary.BigEndian.PutUint16(out[2:], to)
	binary.BigEndian.PutUint16(out[4:], uint16(header+len(message)))
	return append(out, message...)
}

// prepare keeps all but messages of handshakes away from the socket, as it would
// see each datagram of the host, and has the kernel make checksums for IPv6.
func prepare(conn *net.IPConn, six bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		// This filter (BPF, socket(7)) passes datagrams whose first byte is the type of an answer.
		// A raw socket sees the header of IPv4, but not of IPv6.
		load := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: header}}
		if !six {
			load = []unix.SockFilter{
				{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH},
				{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: header},
			}
		}
		filter := append(load,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 2, Jt: 1},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 3, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: longest},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		)
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if err == nil && six {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
		}
	}), err)
}
