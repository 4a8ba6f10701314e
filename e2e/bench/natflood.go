package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Places in a frame that hold a TCP SYN.
const (
	frameIP   = 14
	frameTCP  = frameIP + 20
	frameSize = frameTCP + 20
)

// flood sends count first packets of TCP connections, to the targets in turn,
// each from an address and port of its own, and gives the time until the last
// arrived behind the node. There is nothing that answers: what is measured is
// the gateway, not the two ends of a handshake.
func (l *natLab) flood(targets []netip.AddrPort, count int) (took time.Duration, err error) {
	before, err := l.arrived()
	if err != nil {
		return 0, err
	}
	frame, link, err := l.frame()
	if err != nil {
		return 0, err
	}
	err = l.client.inside(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("make packet socket: %w", err)
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: link, Halen: 6}
		begin := time.Now()
		for i := range count {
			aim(frame, i, targets[i%len(targets)])
			err := unix.Sendto(fd, frame, 0, to)
			for errors.Is(err, unix.ENOBUFS) {
				// The node's queue is full: it gets the processor, then the same again.
				time.Sleep(20 * time.Microsecond)
				err = unix.Sendto(fd, frame, 0, to)
			}
			if err != nil {
				return fmt.Errorf("send packet %d: %w", i, err)
			}
		}
		if err := l.await(before + uint64(count)); err != nil {
			return err
		}
		took = time.Since(begin)
		return nil
	})
	return took, err
}

// deafen makes the server drop what arrives, after it was counted.
func (l *natLab) deafen() error {
	const table = "table netdev bench { chain in { type filter hook ingress device eth0 priority 0; ether type ip drop; }; }"
	return l.server.run(table, "nft", "-f", "-")
}

// frame is the part that all packets share, and the index of the link to send it on.
func (l *natLab) frame() ([]byte, int, error) {
	near, err := l.client.links.LinkByName("eth0")
	far, errFar := l.node.links.LinkByName("pod0")
	if err := errors.Join(err, errFar); err != nil {
		return nil, 0, err
	}
	f := make([]byte, frameSize)
	copy(f, far.Attrs().HardwareAddr)
	copy(f[6:], near.Attrs().HardwareAddr)
	binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IP)
	ip, tcp := f[frameIP:], f[frameTCP:]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], frameSize-frameIP)
	tcp[12], tcp[13] = 5<<4, 2 // five words of header, SYN
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	return f, near.Attrs().Index, nil
}

// aim sets source, destination and checksums of the packet with a number.
func aim(f []byte, number int, to netip.AddrPort) {
	ip, tcp := f[frameIP:frameTCP], f[frameTCP:]
	pod := nth(natPods, 256+number/60000).As4()
	dst := to.Addr().As4()
	copy(ip[12:], pod[:])
	copy(ip[16:], dst[:])
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], checksum(ip, 0))
	binary.BigEndian.PutUint16(tcp, uint16(1024+number%60000))
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	tcp[16], tcp[17] = 0, 0
	// The pseudo header of RFC 9293: addresses, protocol, length.
	binary.BigEndian.PutUint16(tcp[16:], checksum(tcp, sum(ip[12:20])+unix.IPPROTO_TCP+20))
}

func sum(b []byte) (s uint32) {
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return s
}

func checksum(b []byte, start uint32) uint16 {
	s := start + sum(b)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// arrived counts the packets that came out of the node towards the server.
func (l *natLab) arrived() (uint64, error) {
	link, err := l.server.links.LinkByName("eth0")
	if err != nil {
		return 0, err
	}
	return link.Attrs().Statistics.RxPackets, nil
}

func (l *natLab) await(want uint64) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		have, err := l.arrived()
		if err != nil || have >= want {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d first packets did not come through the node", want-have)
		}
	}
}
