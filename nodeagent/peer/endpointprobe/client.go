// Package endpointprobe checks whether a gateway replies at an address, without touching
// the tunnel.
//
// For WireGuard it sends a handshake initiation from the port of this gateway's device and reads
// the response from a raw socket. It does not complete the handshake, so the current session stays.
// The peer responds to the source address of the probe, so a response proves that both directions
// work. VXLAN uses SendVXLAN, IPsec uses ProbeIKE.
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
	// maxReplyLength is more than the length of any reply, in bytes.
	maxReplyLength = 512
	// udpHeaderLength is the length of a UDP header, in bytes.
	udpHeaderLength = 8
)

// Request has the keys of a WireGuard probe and the address to probe.
type Request struct {
	Keys Keys
	From uint16         // UDP port of this gateway's device
	To   netip.AddrPort // possible endpoint of the peer
}

// Client sends probes and reads their replies. Its sockets are open only while a reply may arrive.
// The sockets for WireGuard are raw, because the ports belong to the tunnel devices. Its methods
// may be called from any goroutine.
type Client struct {
	mu        sync.Mutex
	rawConns  map[bool]*net.IPConn  // key: whether the socket is for IPv6
	pending   map[uint32]pending    // by handshake index
	idleTimer *time.Timer           // closes the raw sockets
	ikeConns  map[*net.UDPConn]bool // one for each IKE probe
	readers   sync.WaitGroup
}

// pending is a WireGuard probe that waits for its reply.
type pending struct {
	*initiation
	localPort uint16
	sent      time.Time
	onReply   func()
}

// New returns a client without open sockets.
func New() *Client {
	return &Client{pending: map[uint32]pending{}, rawConns: map[bool]*net.IPConn{}, ikeConns: map[*net.UDPConn]bool{}}
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
	conn, err := c.rawSocket(r.To.Addr().Is6())
	if err != nil {
		return err
	}
	c.pending[handshake.index] = pending{initiation: handshake, localPort: r.From, sent: now, onReply: onReply}
	to := &net.IPAddr{IP: r.To.Addr().AsSlice(), Zone: r.To.Addr().Zone()}
	if _, err := conn.WriteToIP(udpDatagram(r.From, r.To.Port(), message), to); err != nil {
		return fmt.Errorf("probe gateway at %s: %w", r.To, err)
	}
	return nil
}

// Close drops all pending probes. It returns after running calls of onReply have ended.
func (c *Client) Close() {
	c.mu.Lock()
	c.closeRaw()
	for conn := range c.ikeConns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.readers.Wait()
}

// closeRaw closes the raw sockets. c.mu must be held.
func (c *Client) closeRaw() {
	clear(c.pending)
	for ipv6, conn := range c.rawConns {
		_ = conn.Close()
		delete(c.rawConns, ipv6)
	}
}

// rawSocket returns the raw socket of an address family. It keeps the socket open until
// replyTimeout after the last probe. c.mu must be held.
func (c *Client) rawSocket(ipv6 bool) (*net.IPConn, error) {
	if c.idleTimer == nil {
		c.idleTimer = time.AfterFunc(replyTimeout, c.closeIdle)
	}
	c.idleTimer.Reset(replyTimeout)
	if conn := c.rawConns[ipv6]; conn != nil {
		return conn, nil
	}
	network := "ip4:udp"
	if ipv6 {
		network = "ip6:udp"
	}
	conn, err := net.ListenIP(network, nil)
	if err != nil {
		return nil, fmt.Errorf("open raw socket for endpoint probes: %w", err)
	}
	if err := filterReplies(conn, ipv6); err != nil {
		return nil, errors.Join(fmt.Errorf("filter raw socket for endpoint probes: %w", err), conn.Close())
	}
	c.rawConns[ipv6] = conn
	c.readers.Go(func() {
		buffer := make([]byte, maxReplyLength)
		for {
			n, _, err := conn.ReadFromIP(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				// Errors such as ECONNREFUSED after an ICMP error are not
				// permanent.
				time.Sleep(time.Millisecond)
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

// matchReply returns the onReply of the probe that a UDP datagram replies to; nil if it is not a
// reply.
func (c *Client) matchReply(raw []byte) func() {
	if len(raw) < udpHeaderLength {
		return nil
	}
	index, ok := replyIndex(raw[udpHeaderLength:])
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.pending[index]
	destPort := binary.BigEndian.Uint16(raw[2:])
	if !known || destPort != p.localPort || !p.isReply(raw[udpHeaderLength:]) {
		return nil
	}
	delete(c.pending, index)
	return p.onReply
}

// udpDatagram returns a message with a UDP header. The checksum is 0: IPv4 needs none, and the
// kernel computes it for IPv6.
func udpDatagram(sourcePort, destPort uint16, message []byte) []byte {
	out := make([]byte, udpHeaderLength, udpHeaderLength+len(message))
	binary.BigEndian.PutUint16(out, sourcePort)
	binary.BigEndian.PutUint16(out[2:], destPort)
	binary.BigEndian.PutUint16(out[4:], uint16(udpHeaderLength+len(message)))
	return append(out, message...)
}

// filterReplies attaches a filter that passes only handshake replies, because a raw socket receives
// every UDP datagram of the host. It also lets the kernel compute the checksums of IPv6 datagrams.
func filterReplies(conn *net.IPConn, ipv6 bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		// This BPF filter (socket(7)) loads the first byte of the UDP payload, the message
		// type. A raw socket receives the IPv4 header, but not the IPv6 header.
		load := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: udpHeaderLength}}
		if !ipv6 {
			load = []unix.SockFilter{
				{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH},
				{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_IND, K: udpHeaderLength},
			}
		}
		filter := append(load,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 2, Jt: 1},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 3, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: maxReplyLength},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		)
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if err == nil && ipv6 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
		}
	}), err)
}
