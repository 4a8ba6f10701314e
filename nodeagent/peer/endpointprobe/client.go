// Package endpointprobe checks whether a gateway replies at an address, without touching
// the tunnel.
//
// For WireGuard it sends a handshake initiation from the port of the gateway's own device
// and reads the response from a raw socket. It does not complete the handshake, so the
// current session stays. The peer then sends to the address that the probe came from: if
// the response arrives, that address works. VXLAN uses SendVXLAN, IPsec uses ProbeIKE.
package endpointprobe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// replyTimeout limits the time between a probe and its reply.
	replyTimeout = 3 * time.Second
	// maxReply is more than the length of any reply, in bytes.
	maxReply = 512
	// udpHeader is the length of a UDP header, in bytes.
	udpHeader = 8
)

// Request names the peer of a WireGuard probe and the address to try.
type Request struct {
	Keys Keys
	From uint16         // UDP port of this gateway's device
	To   netip.AddrPort // where the peer's device may be
}

// Client sends probes and reads their replies. Its sockets are open only while a reply may
// arrive. Those for WireGuard are raw, because the ports belong to the tunnel devices. Its
// methods may be called from any goroutine.
type Client struct {
	mu      sync.Mutex
	raw     map[bool]*net.IPConn  // by whether it is IPv6
	pending map[uint32]pending    // by handshake index
	idle    *time.Timer           // closes the raw sockets
	ike     map[*net.UDPConn]bool // one for each IKE probe
	readers sync.WaitGroup
}

// pending is a WireGuard probe that waits for its reply.
type pending struct {
	*initiation
	from    uint16
	sent    time.Time
	onReply func()
}

// New returns a client without open sockets.
func New() *Client {
	return &Client{pending: map[uint32]pending{}, raw: map[bool]*net.IPConn{}, ike: map[*net.UDPConn]bool{}}
}

// ProbeWireGuard sends a handshake initiation. It calls onReply at most once, from another
// goroutine, if the peer replies in time.
func (c *Client) ProbeWireGuard(r Request, onReply func()) error {
	handshake, message, err := newInitiation(r.Keys)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for index, p := range c.pending {
		if now.Sub(p.sent) > replyTimeout {
			delete(c.pending, index)
		}
	}
	conn, err := c.socket(r.To.Addr().Is6())
	if err != nil {
		return err
	}
	c.pending[handshake.index] = pending{initiation: handshake, from: r.From, sent: now, onReply: onReply}
	to := &net.IPAddr{IP: r.To.Addr().AsSlice(), Zone: r.To.Addr().Zone()}
	if _, err := conn.WriteToIP(datagram(r.From, r.To.Port(), message), to); err != nil {
		return fmt.Errorf("probe gateway at %s: %w", r.To, err)
	}
	return nil
}

// Close drops all pending probes and waits until no onReply runs.
func (c *Client) Close() {
	c.mu.Lock()
	c.closeRaw()
	for conn := range c.ike {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.readers.Wait()
}

// closeRaw closes the raw sockets. c.mu must be held.
func (c *Client) closeRaw() {
	clear(c.pending)
	for six, conn := range c.raw {
		_ = conn.Close()
		delete(c.raw, six)
	}
}

// socket returns the raw socket of a family, and keeps it open until replyTimeout after
// the last probe. c.mu must be held.
func (c *Client) socket(six bool) (*net.IPConn, error) {
	if c.idle == nil {
		c.idle = time.AfterFunc(replyTimeout, c.closeIdle)
	}
	c.idle.Reset(replyTimeout)
	if conn := c.raw[six]; conn != nil {
		return conn, nil
	}
	network := "ip4:udp"
	if six {
		network = "ip6:udp"
	}
	conn, err := net.ListenIP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("open raw socket for endpoint probes: %w", err)
	}
	if err := filterReplies(conn, six); err != nil {
		return nil, errors.Join(fmt.Errorf("filter raw socket for endpoint probes: %w", err), conn.Close())
	}
	c.raw[six] = conn
	c.readers.Go(func() {
		buffer := make([]byte, maxReply)
		for {
			n, _, err := conn.ReadFromIP(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(time.Millisecond) // such as ECONNREFUSED after an ICMP error: continue, but never spin
				continue
			}
			if onReply := c.matchReply(buffer[:n]); onReply != nil {
				onReply()
			}
		}
	})
	return conn, nil
}

func (c *Client) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeRaw()
}

// matchReply returns the onReply of the probe that a UDP datagram replies to; otherwise nil.
func (c *Client) matchReply(raw []byte) func() {
	if len(raw) < udpHeader {
		return nil
	}
	index, ok := replyIndex(raw[udpHeader:])
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.pending[index]
	if !known || binary.BigEndian.Uint16(raw[2:]) != p.from || !p.verifies(raw[udpHeader:]) {
		return nil
	}
	delete(c.pending, index)
	return p.onReply
}

// datagram returns a message with a UDP header. The checksum stays 0, which means none
// over IPv4; over IPv6 the kernel computes it.
func datagram(from, to uint16, message []byte) []byte {
	out := make([]byte, udpHeader, udpHeader+len(message))
	binary.BigEndian.PutUint16(out, from)
	binary.BigEndian.PutUint16(out[2:], to)
	binary.BigEndian.PutUint16(out[4:], uint16(udpHeader+len(message)))
	return append(out, message...)
}

// filterReplies lets only handshake replies pass to the socket, because a raw socket receives every
// UDP datagram of the host. For IPv6 the kernel also computes checksums.
func filterReplies(conn *net.IPConn, six bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		// This filter (BPF, socket(7)) loads the first byte of the UDP payload: the message type.
		// A raw socket sees the IPv4 header, but not the IPv6 header.
		load := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: udpHeader}}
		if !six {
			load = []unix.SockFilter{
				{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH},
				{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: udpHeader},
			}
		}
		filter := append(load,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 2, Jt: 1},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 3, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: maxReply},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		)
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if err == nil && six {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
		}
	}), err)
}
