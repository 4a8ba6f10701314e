package endpointprobe

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Frame addresses a UDP datagram inside VXLAN.
type Frame struct {
	VNI          int
	From, To     net.HardwareAddr
	Source, Addr netip.Addr // of one family
	Port         uint16     // UDP, of both ends
	SourcePort   uint16     // UDP, of the sender if it differs; 0 = Port
}

// SendVXLAN sends a datagram inside VXLAN to an underlay address. The peer's VXLAN device
// receives it like any other frame. That device's own endpoint does not matter.
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

// vxlanValid is the flag that a VXLAN header has a VNI (RFC 7348, section 5).
const vxlanValid = 0x08

// Wrap returns a payload behind VXLAN, Ethernet, IP and UDP headers.
func (f *Frame) Wrap(payload []byte) []byte {
	out := make([]byte, 8, 128+len(payload))
	out[0] = vxlanValid
	binary.BigEndian.PutUint32(out[4:], uint32(f.VNI)<<8)
	out = append(append(out, f.To...), f.From...)
	if f.Addr.Is4() {
		out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IP)
		return append(append(out, f.header4(len(payload))...), f.udp(payload)...)
	}
	out = binary.BigEndian.AppendUint16(out, unix.ETH_P_IPV6)
	return append(append(out, f.header6(len(payload))...), f.udp(payload)...)
}

// hopLimit is the time to live of the inner packet.
const hopLimit = 64

// header4 returns an IPv4 header (RFC 791, section 3.1) for a UDP payload of a length.
func (f *Frame) header4(payload int) []byte {
	out := make([]byte, 20)
	out[0], out[8], out[9] = 4<<4|5, hopLimit, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(out[2:], uint16(len(out)+udpHeader+payload))
	copy(out[12:], f.Source.AsSlice())
	copy(out[16:], f.Addr.AsSlice())
	binary.BigEndian.PutUint16(out[10:], ^checksum(out))
	return out
}

// header6 returns an IPv6 header (RFC 8200, section 3) for a UDP payload of a length.
func (f *Frame) header6(payload int) []byte {
	out := make([]byte, 40)
	out[0], out[6], out[7] = 6<<4, unix.IPPROTO_UDP, hopLimit
	binary.BigEndian.PutUint16(out[4:], uint16(udpHeader+payload))
	copy(out[8:], f.Source.AsSlice())
	copy(out[24:], f.Addr.AsSlice())
	return out
}

// udp returns a UDP datagram with the checksum that IPv6 requires.
func (f *Frame) udp(payload []byte) []byte {
	out := datagram(cmp.Or(f.SourcePort, f.Port), f.Port, payload)
	pseudo := append(f.Source.AsSlice(), f.Addr.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(out)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, unix.IPPROTO_UDP)
	sum := ^checksum(append(pseudo, out...))
	if sum == 0 {
		sum = 0xffff // 0 means that there is no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(out[6:], sum)
	return out
}

// checksum returns the one's complement sum of 16-bit words (RFC 1071).
func checksum(raw []byte) uint16 {
	total := uint32(0)
	for ; len(raw) > 1; raw = raw[2:] {
		total += uint32(binary.BigEndian.Uint16(raw))
	}
	if len(raw) == 1 {
		total += uint32(raw[0]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
