package endpointprobe

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Frame has the addresses of a UDP datagram inside VXLAN.
type Frame struct {
	VNI          int
	From, To     net.HardwareAddr
	Source, Addr netip.Addr // of one family
	Port         uint16     // UDP, of both ends
	SourcePort   uint16     // UDP, of the sender if it differs; 0 = Port
}

// SendVXLAN sends a datagram inside VXLAN to an underlay address. The VXLAN device of the peer
// receives it like any other frame. The configured remote address of that device does not matter.
func SendVXLAN(to netip.AddrPort, f Frame, payload []byte) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return fmt.Errorf("probe gateway at %s: %w", to, err)
	}
	defer conn.Close()
	if _, err := conn.Write(f.Wrap(payload)); err != nil {
		return fmt.Errorf("probe gateway at %s: %w", to, err)
	}
	return nil
}

// vxlanFlagVNI is the flag that a VXLAN header has a VNI (RFC 7348, section 5).
const vxlanFlagVNI = 0x08

// Wrap returns a payload with VXLAN, Ethernet, IP and UDP headers.
func (f *Frame) Wrap(payload []byte) []byte {
	out := make([]byte, 8, 128+len(payload))
	out[0] = vxlanFlagVNI
	binary.BigEndian.PutUint32(out[4:], uint32(f.VNI)<<8)
	out = append(append(out, f.To...), f.From...)
	if f.Addr.Is4() {
		out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IP)
		return append(append(out, f.ipv4Header(len(payload))...), f.udpDatagram(payload)...)
	}
	out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IPV6)
	return append(append(out, f.ipv6Header(len(payload))...), f.udpDatagram(payload)...)
}

// hopLimit is the time to live of the inner packet.
const hopLimit = 64

// ipv4Header returns an IPv4 header (RFC 791, section 3.1) for a UDP payload.
func (f *Frame) ipv4Header(payloadLength int) []byte {
	out := make([]byte, 20)
	out[0], out[8], out[9] = 4<<4|5, hopLimit, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)+udpHeaderLength+payloadLength))
	copy(out[12:], f.Source.AsSlice())
	copy(out[16:], f.Addr.AsSlice())
	binary.BigEndian.PutUint16(out[10:], ^checksum(out))
	return out
}

// ipv6Header returns an IPv6 header (RFC 8200, section 3) for a UDP payload.
func (f *Frame) ipv6Header(payloadLength int) []byte {
	out := make([]byte, 40)
	out[0], out[6], out[7] = 6<<4, unix.IPPROTO_UDP, hopLimit
	binary.BigEndian.PutUint16(out[4:], uint16(udpHeaderLength+payloadLength))
	copy(out[8:], f.Source.AsSlice())
	copy(out[24:], f.Addr.AsSlice())
	return out
}

// udpDatagram returns a UDP datagram with the checksum that IPv6 requires.
func (f *Frame) udpDatagram(payload []byte) []byte {
	out := udpDatagram(cmp.Or(f.SourcePort, f.Port), f.Port, payload)
	pseudoHeader := append(f.Source.AsSlice(), f.Addr.AsSlice()...)
	pseudoHeader = binary.BigEndian.AppendUint32(pseudoHeader, uint32(len(out)))
	pseudoHeader = binary.BigEndian.AppendUint32(pseudoHeader, unix.IPPROTO_UDP)
	sum := ^checksum(append(pseudoHeader, out...))
	if sum == 0 {
		sum = 0xffff // 0 means that there is no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(out[6:], sum)
	return out
}

// checksum returns the one's complement sum of 16-bit words (RFC 1071).
func checksum(raw []byte) uint16 {
	sum := uint32(0)
	for ; len(raw) > 1; raw = raw[2:] {
		sum += uint32(binary.BigEndian.Uint16(raw))
	}
	if len(raw) == 1 {
		sum += uint32(raw[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
