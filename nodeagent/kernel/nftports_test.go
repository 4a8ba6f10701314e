package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The port of a TCP connection is never changed in its middle: when the entry
// that the packet needs cannot be made, because another one has its addresses and
// ports, the packet is lost. With another port the pod would answer with a reset.
func TestNftPortsStay(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("remote4 242.2.0.0/15", "unmapped4 242.1.0.0/16 | 10.7.0.0/16")
	heard := nftSegments(l.pod, nftPod)
	server, mapped := netip.MustParseAddrPort(nftRemote+":8001"), netip.MustParseAddr("242.1.1.2")
	nftSegmentTo(l.remote, server, netip.AddrPortFrom(mapped, 4000))
	if got := <-heard; got != 8001 {
		t.Fatalf("a free port arrives as %d", got)
	}
	// What a flow leaves behind that this gateway handed to another one.
	pod, remote := net.ParseIP(nftPod).To4(), net.ParseIP(nftRemote).To4()
	taken := &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET, TimeOut: 60, ProtoInfo: &netlink.ProtoInfoTCP{State: 3},
		Forward: netlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: pod, SrcPort: 4001, DstIP: remote, DstPort: 8001},
		Reverse: netlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: remote, SrcPort: 8001, DstIP: pod, DstPort: 4001},
	}
	l.node.must(l.node.links.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, taken), "make an entry")
	nftSegmentTo(l.remote, server, netip.AddrPortFrom(mapped, 4001))
	select {
	case got := <-heard:
		t.Errorf("the packet arrives from port %d", got)
	case <-time.After(nftNoWait):
	}
}

// nftSegments gives the source ports of TCP segments that reach an address.
func nftSegments(ns *nftNS, address string) <-chan int {
	ns.t.Helper()
	out := make(chan int, 10)
	var conn *net.IPConn
	var err error
	ns.inside(func() { conn, err = net.ListenIP("ip4:tcp", &net.IPAddr{IP: net.ParseIP(address)}) })
	ns.must(err, "listen for segments")
	ns.t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, _, err := conn.ReadFromIP(buf)
			if err != nil {
				return
			}
			if n >= 20 {
				out <- int(binary.BigEndian.Uint16(buf))
			}
		}
	}()
	return out
}

// nftSegmentTo sends a TCP segment from the middle of a connection.
func nftSegmentTo(ns *nftNS, from, to netip.AddrPort) {
	ns.t.Helper()
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, from.Port())
	binary.BigEndian.PutUint16(segment[2:], to.Port())
	segment[12], segment[13] = 5<<4, 0x10 // no options, ACK
	binary.BigEndian.PutUint16(segment[16:], nftTCPChecksum(from.Addr(), to.Addr(), segment))
	var conn *net.IPConn
	var err error
	ns.inside(func() {
		conn, err = net.DialIP("ip4:tcp", &net.IPAddr{IP: net.IP(from.Addr().AsSlice())}, &net.IPAddr{IP: net.IP(to.Addr().AsSlice())})
	})
	ns.must(err, "open raw socket")
	defer conn.Close()
	_, err = conn.Write(segment)
	ns.must(err, "send segment")
}

// nftTCPChecksum is that of TCP over IPv4 (RFC 9293, 3.1).
func nftTCPChecksum(src, dst netip.Addr, segment []byte) uint16 {
	whole := append(append(src.AsSlice(), dst.AsSlice()...), 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	whole = append(whole, segment...)
	sum := uint32(0)
	for i := 0; i < len(whole); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(whole[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
