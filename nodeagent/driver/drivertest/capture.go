package drivertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// recording is a socket that receives a copy of every packet on a device. Packets wait in the
// socket until stop reads them, so none is missed at the end.
type recording struct {
	env *env
	fd  int
}

const recordingBuffer = 16 << 20

// capture starts recording the packets on a device; "any" is all devices.
func (r *env) capture(s *namespace, device string) *recording {
	r.t.Helper()
	c := &recording{env: r}
	s.inside(func() (err error) {
		// Datagrams begin with the network header.
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open packet socket: %w", err)
		}
		index := 0
		if device != "any" {
			link, err := net.InterfaceByName(device)
			if err != nil {
				return fmt.Errorf("find %s: %w", device, err)
			}
			index = link.Index
			member := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
			if err := unix.SetsockoptPacketMreq(c.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &member); err != nil {
				return fmt.Errorf("set promiscuous mode of %s: %w", device, err)
			}
		}
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, recordingBuffer); err != nil {
			return fmt.Errorf("set buffer: %w", err)
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	})
	return c
}

// stop ends the recording and returns its IP packets.
func (c *recording) stop() []packet {
	c.env.t.Helper()
	defer func() { _ = unix.Close(c.fd) }()
	var out []packet
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(c.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return out
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			c.env.t.Fatalf("read packets: %v", err)
		}
		if p, ok := readPacket(buf[:max(n, 0)]); ok {
			out = append(out, p)
		}
	}
}

// packet is one IP packet.
type packet struct {
	from, to string // addresses
	proto    byte   // IP protocol number
	length   int    // of the whole packet, bytes
	raw      []byte // starts with the IP header
}

func readPacket(b []byte) (packet, bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return packet{
			from: net.IP(b[12:16]).String(), to: net.IP(b[16:20]).String(), proto: b[9],
			length: int(binary.BigEndian.Uint16(b[2:])), raw: slices.Clone(b),
		}, true
	case len(b) >= 40 && b[0]>>4 == 6:
		return packet{
			from: net.IP(b[8:24]).String(), to: net.IP(b[24:40]).String(), proto: b[6],
			length: 40 + int(binary.BigEndian.Uint16(b[4:])), raw: slices.Clone(b),
		}, true
	}
	return packet{}, false
}

// payload returns the bytes after the IP header, which has no options here.
func (p *packet) payload() []byte {
	if p.raw[0]>>4 == 4 {
		return p.raw[20:p.length]
	}
	return p.raw[40:p.length]
}

// fragment reports whether the packet is an IP fragment.
func (p *packet) fragment() bool {
	if p.raw[0]>>4 == 4 {
		return p.raw[6]&0x3f != 0 || p.raw[7] != 0
	}
	return p.proto == unix.IPPROTO_FRAGMENT
}

// spare returns the bytes that the driver reserves for UDP encapsulation of ESP (RFC 3948) and that
// native ESP does not use.
func (p *packet) spare() int {
	if p.proto == unix.IPPROTO_ESP {
		return 8
	}
	return 0
}
