package reach

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// frame holds the parsed fields of a packet. The packet's last four bytes are its identity.
type frame struct {
	protocol string
	src, dst netip.AddrPort
	via      netip.Addr // for transit packets: the next gateway
	id       uint32
}

const (
	tcpSyn = 0x02
	tcpAck = 0x10
)

// raw encodes a packet with an identity.
func raw(p Packet, id uint32) []byte {
	var l4 []byte
	port := func(at int, n uint16) { binary.BigEndian.PutUint16(l4[at:], n) }
	six := p.Src.Addr().Is6()
	proto, sum := byte(0), 0
	switch p.Protocol {
	case "tcp":
		l4 = make([]byte, 24)
		proto, sum = unix.IPPROTO_TCP, 16
		port(0, p.Src.Port())
		port(2, p.Dst.Port())
		l4[7], l4[12], l4[13] = 1, 5<<4, tcpSyn
		if p.MidFlow {
			l4[13] = tcpAck
		}
		port(14, 1000)
	case "udp":
		l4 = make([]byte, 12)
		proto, sum = unix.IPPROTO_UDP, 6
		port(0, p.Src.Port())
		port(2, p.Dst.Port())
		port(4, uint16(len(l4)))
	case "icmp":
		l4 = make([]byte, 12)
		proto, sum = unix.IPPROTO_ICMP, 2
		l4[0] = 8
		if p.MidFlow {
			l4[0] = 0
		}
		if six {
			proto, l4[0] = unix.IPPROTO_ICMPV6, 128
			if p.MidFlow {
				l4[0] = 129
			}
		}
		port(4, p.Src.Port())
		port(6, 1)
	}
	binary.BigEndian.PutUint32(l4[len(l4)-4:], id)
	pseudo := uint32(0)
	if proto != unix.IPPROTO_ICMP {
		pseudo = fold(fold(uint32(proto)+uint32(len(l4)), p.Src.Addr().AsSlice()), p.Dst.Addr().AsSlice())
	}
	binary.BigEndian.PutUint16(l4[sum:], checksum(pseudo, l4))
	return append(header(p.Src.Addr(), p.Dst.Addr(), proto, len(l4)), l4...)
}

// transitHeaders is the size in bytes of the headers between the outer IP header of a transit
// packet and the inner packet: UDP, VXLAN and Ethernet.
const transitHeaders = 8 + 8 + 14

// encapsulate puts a packet into the overlay for transit traffic, from one gateway to another,
// given by their tunnel addresses. link is the hardware address of the second.
func encapsulate(packet []byte, from, to netip.Addr, link net.HardwareAddr) []byte {
	udp := make([]byte, transitHeaders, transitHeaders+len(packet))
	binary.BigEndian.PutUint16(udp, 40000)
	binary.BigEndian.PutUint16(udp[2:], desired.TransitPort)
	udp[8] = 0x08 // the VNI is valid (RFC 7348)
	udp[14] = desired.TransitVNI
	copy(udp[16:], link)
	copy(udp[22:], []byte{2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(udp[28:], unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		binary.BigEndian.PutUint16(udp[28:], unix.ETH_P_IPV6)
	}
	udp = append(udp, packet...)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	// Over IPv6 UDP has to have a checksum (RFC 8200, section 8.1).
	binary.BigEndian.PutUint16(udp[6:], checksum(fold(fold(uint32(unix.IPPROTO_UDP)+uint32(len(udp)), from.AsSlice()), to.AsSlice()), udp))
	return append(header(from, to, unix.IPPROTO_UDP, len(udp)), udp...)
}

// header returns the IP header for size bytes of a protocol.
func header(src, dst netip.Addr, proto byte, size int) []byte {
	if src.Is6() {
		head := make([]byte, 40)
		head[0], head[6], head[7] = 6<<4, proto, 64
		binary.BigEndian.PutUint16(head[4:], uint16(size))
		copy(head[8:], src.AsSlice())
		copy(head[24:], dst.AsSlice())
		return head
	}
	head := make([]byte, 20)
	head[0], head[8], head[9] = 4<<4|5, 64, proto
	binary.BigEndian.PutUint16(head[2:], uint16(20+size))
	copy(head[12:], src.AsSlice())
	copy(head[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(head[10:], checksum(0, head))
	return head
}

func fold(sum uint32, b []byte) uint32 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return sum
}

func checksum(sum uint32, b []byte) uint16 {
	sum = fold(sum, b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// parse parses a packet of this test after the kernel forwarded it. It returns false for the
// kernel's own packets, such as neighbour discovery.
func parse(b []byte) (frame, bool) {
	var f frame
	if len(b) < 20 {
		return f, false
	}
	var l4 []byte
	var proto byte
	var src, dst netip.Addr
	if b[0]>>4 == 4 {
		proto, l4 = b[9], b[20:]
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
	} else if len(b) >= 40 {
		proto, l4 = b[6], b[40:]
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
	}
	if len(l4) < 8 {
		return f, false
	}
	if proto == unix.IPPROTO_UDP && binary.BigEndian.Uint16(l4[2:]) == desired.TransitPort && len(l4) > transitHeaders {
		f, ok := parse(l4[transitHeaders:])
		f.via = dst
		return f, ok
	}
	sport, dport := binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	switch proto {
	case unix.IPPROTO_TCP:
		f.protocol = "tcp"
		if l4[13]&0x04 != 0 {
			f.protocol = "reset"
		}
	case unix.IPPROTO_UDP:
		f.protocol = "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		f.protocol, sport, dport = "icmp", 0, 0
		echo := l4[0] == 0 || l4[0] == 8
		if proto == unix.IPPROTO_ICMPV6 {
			echo = l4[0] == 128 || l4[0] == 129
		}
		if !echo {
			f.protocol = "icmp error"
		}
		if proto == unix.IPPROTO_ICMPV6 && l4[0] >= 130 {
			return f, false // neighbour discovery
		}
	default:
		return f, false
	}
	f.src, f.dst, f.id = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport), lastWord(b)
	return f, true
}
