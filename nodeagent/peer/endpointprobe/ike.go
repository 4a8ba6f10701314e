package endpointprobe

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Fields of an IKE header (RFC 7296, section 3.1).
const (
	ikeHeaderLength  = 28     // bytes
	ikeFutureVersion = 3 << 4 // 3.0
	ikeSAInit        = 34     // exchange type IKE_SA_INIT
	ikeInitiator     = 1 << 3 // flag
)

// nonESPMarkerLen is the length of the zeros before IKE on a port that it shares with ESP
// (RFC 3948, section 2.2).
const nonESPMarkerLen = 4

// ProbeIKE sends an IKE message to a port that IKE shares with ESP (RFC 3948). The message has a
// version that does not exist yet. IKE daemons should reply with their own version (RFC 7296,
// section 2.5), and strongSwan does. They keep no state. The reply is not authenticated. ProbeIKE
// calls onReply at most once, from another goroutine.
func (c *Client) ProbeIKE(to netip.AddrPort, onReply func()) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("probe gateway at %s: %w", to, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(replyTimeout)) // fails only for sockets without deadlines
	var spi [8]byte
	_, _ = rand.Read(spi[:]) // never fails
	if _, err := conn.Write(ikeProbe(spi)); err != nil {
		_ = conn.Close()
		return fmt.Errorf("probe gateway at %s: %w", to, err)
	}
	c.mu.Lock()
	c.ikeConns[conn] = true
	c.mu.Unlock()
	c.readers.Go(func() {
		replied := awaitIKEReply(conn, spi)
		c.mu.Lock()
		delete(c.ikeConns, conn)
		c.mu.Unlock()
		_ = conn.Close()
		if replied {
			onReply()
		}
	})
	return nil
}

// ikeProbe returns the non-ESP marker and an IKE header without payloads.
func ikeProbe(spi [8]byte) []byte {
	out := make([]byte, nonESPMarkerLen, nonESPMarkerLen+ikeHeaderLength)
	out = append(out, spi[:]...)
	out = append(out, make([]byte, 8)...) // the responder's SPI
	out = append(out, 0, ikeFutureVersion, ikeSAInit, ikeInitiator, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(out, ikeHeaderLength)
}

// awaitIKEReply reports whether an IKE message with the probe's SPI arrives before the deadline.
func awaitIKEReply(conn *net.UDPConn, spi [8]byte) bool {
	prefix := append(make([]byte, nonESPMarkerLen), spi[:]...)
	buffer := make([]byte, maxReplyLength)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return false
		}
		if n >= nonESPMarkerLen+ikeHeaderLength && bytes.HasPrefix(buffer, prefix) {
			return true
		}
	}
}
