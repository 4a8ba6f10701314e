package sniff

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Source returns the source address of the packet in a frame. It returns the zero address for
// frames without IP and for neighbour discovery.
func Source(frame []byte) netip.Addr {
	p, ok := parseFrame(frame)
	if !ok || p.src.Is6() && isNeighborDiscovery(frame[14:]) {
		return netip.Addr{}
	}
	return p.src
}

// vxlanHeader is the size in bytes of the VXLAN header (RFC 7348).
const vxlanHeader = 8

// Inner returns the inner frame of a VXLAN packet to a port, or nil for other frames.
func Inner(frame []byte, port uint16) []byte {
	p, ok := parseFrame(frame)
	if !ok || p.proto != protoUDP || p.fragment || len(p.rest) < 8+vxlanHeader || binary.BigEndian.Uint16(p.rest[2:]) != port {
		return nil
	}
	return p.rest[8+vxlanHeader:]
}

// Refuses reports whether a frame is an ICMP error: unreachable, or time exceeded.
func Refuses(frame []byte) bool {
	p, ok := parseFrame(frame)
	return ok && p.failure()
}

// Resets reports whether a frame is a TCP reset.
func Resets(frame []byte) bool {
	p, ok := parseFrame(frame)
	const flags, reset = 13, 4
	return ok && p.proto == protoTCP && !p.fragment && len(p.rest) > flags && p.rest[flags]&reset != 0
}

// Describe returns a readable description of a frame.
func Describe(frame []byte) string {
	if len(frame) < 14 {
		return fmt.Sprintf("%x", frame)
	}
	p, ok := parseFrame(frame)
	if !ok {
		return fmt.Sprintf("ethertype %#04x, %d bytes: %x", binary.BigEndian.Uint16(frame[12:]), len(frame), frame[14:min(len(frame), 78)])
	}
	ports := ""
	if !p.fragment && (p.proto == protoTCP || p.proto == protoUDP) && len(p.rest) >= 4 {
		ports = fmt.Sprintf(" ports %d > %d", binary.BigEndian.Uint16(p.rest), binary.BigEndian.Uint16(p.rest[2:]))
	}
	return fmt.Sprintf("%v%s, %d bytes: %x", p, ports, len(frame), p.rest[:min(len(p.rest), 48)])
}
