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

// Parts of an IKE header (RFC 7296, section 3.1).
const (
	ikeHeader    = 28
	ikeFuture    = 3 << 4 // version 3.0
	ikeInit      = 34     // IKE_SA_INIT
	ikeInitiator = 1 << 3
)

// ProbeIKE asks whether somebody speaks IKE at a place where IKE and ESP share a port
// (RFC 3948). The question is of a version that does not exist yet: whoever hears it
// says which one it speaks (RFC 7296, section 2.5), and keeps nothing of it. So an
// answer says that the way is open, and not yet who is there. answered is called
// at most once, by another goroutine.
func (s *Client) ProbeIKE(to netip.AddrPort, answered func()) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("ask gateway at %s: %w", to, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(replyTimeout)) // it does so for every socket
	var own [8]byte
	_, _ = rand.Read(own[:]) // never fails
	if _, err := conn.Write(ikeQuestion(own)); err != nil {
		_ = conn.Close()
		return fmt.Errorf("ask gateway at %s: %w", to, err)
	}
	s.mu.Lock()
	s.calls[conn] = true
	s.mu.Unlock()
	s.readers.Go(func() {
		heard := ikeHeard(conn, own)
		s.mu.Lock()
		delete(s.calls, conn)
		s.mu.Unlock()
		_ = conn.Close()
		if heard {
			answered()
		}
	})
	return nil
}

// ikeQuestion is the header alone, behind the marker that tells it from ESP.
func ikeQuestion(own [8]byte) []byte {
	out := make([]byte, nonESPMarkerLen, nonESPMarkerLen+ikeHeader)
	out = append(append(out, own[:]...), make([]byte, len(own))...)
	out = append(out, 0, ikeFuture, ikeInit, ikeInitiator, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(out, ikeHeader)
}

// nonESPMarkerLen is the length of four zeros before IKE (RFC 3948, section 2.2).
const nonESPMarkerLen = 4

// ikeHeard waits for an answer that names the question.
func ikeHeard(conn *net.UDPConn, own [8]byte) bool {
	buffer := make([]byte, longest)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return false // nobody listens, or nobody answers in time
		}
		if raw := buffer[:n]; n >= nonESPMarkerLen+ikeHeader && bytes.Equal(raw[:nonESPMarkerLen], make([]byte, nonESPMarkerLen)) && bytes.Equal(raw[nonESPMarkerLen:nonESPMarkerLen+len(own)], own[:]) {
			return true
		}
	}
}
