package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// refreshTTL is the TTL of a refresh packet. With 2, the gateway still forwards the packet, and so
// creates its conntrack entry. The packet leaves the gateway with TTL 1, so the remote gateway
// cannot forward it.
const refreshTTL = 2

// Sizes of headers, bytes.
const (
	sizeIPv4 = 20
	sizeIPv6 = 40
	sizeTCP  = 20
	sizeUDP  = 8
)

// buildRefresh builds the refresh packet: a TCP ACK without data, or an empty UDP datagram. Its
// sequence number is zero. So, except with a probability of one in four billion, it is outside
// the window of both ends. An ICMP time exceeded in reply then names no byte that the client
// sent, and its TCP ignores it (RFC 5927, 4.1).
func buildRefresh(protocol uint8, t Tuple, ttl uint8) []byte {
	size := sizeTCP
	if protocol == unix.IPPROTO_UDP {
		size = sizeUDP
	}
	headerSize := sizeIPv4
	if t.From.Addr().Is6() {
		headerSize = sizeIPv6
	}
	packet := make([]byte, headerSize+size)
	if headerSize == sizeIPv4 {
		packet[0] = 4<<4 | sizeIPv4/4
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
		packet[6] = 0x40 // DF: an atomic datagram needs no identification (RFC 6864)
		packet[8], packet[9] = ttl, protocol
		copy(packet[12:16], t.From.Addr().AsSlice())
		copy(packet[16:20], t.To.Addr().AsSlice())
		binary.BigEndian.PutUint16(packet[10:], checksum(0, packet[:sizeIPv4]))
	} else {
		packet[0] = 6 << 4
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-sizeIPv6))
		packet[6], packet[7] = protocol, ttl
		copy(packet[8:24], t.From.Addr().AsSlice())
		copy(packet[24:40], t.To.Addr().AsSlice())
	}
	segment := packet[headerSize:]
	binary.BigEndian.PutUint16(segment[0:], t.From.Port())
	binary.BigEndian.PutUint16(segment[2:], t.To.Port())
	checksumOffset := 6 // of the checksum in UDP
	if protocol == unix.IPPROTO_TCP {
		segment[12] = sizeTCP / 4 << 4
		segment[13] = 0x10 // ACK
		// With an empty window, conntrack would treat the flow as stalled.
		binary.BigEndian.PutUint16(segment[14:], 0xffff)
		checksumOffset = 16
	} else {
		binary.BigEndian.PutUint16(segment[4:], sizeUDP)
	}
	sum := checksum(pseudoHeaderSum(protocol, t, len(segment)), segment)
	if sum == 0 && protocol == unix.IPPROTO_UDP {
		sum = 0xffff // zero means "no checksum" (RFC 768)
	}
	binary.BigEndian.PutUint16(segment[checksumOffset:], sum)
	return packet
}

// pseudoHeaderSum returns the sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
func pseudoHeaderSum(protocol uint8, t Tuple, size int) uint32 {
	sum := uint32(protocol) + uint32(size)
	for _, a := range []netip.Addr{t.From.Addr(), t.To.Addr()} {
		raw := a.AsSlice()
		for i := 0; i < len(raw); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(raw[i:]))
		}
	}
	return sum
}

// checksum returns the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(sum uint32, raw []byte) uint16 {
	for i := 0; i+1 < len(raw); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(raw[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
