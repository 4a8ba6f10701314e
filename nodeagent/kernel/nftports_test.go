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

// TestNftPortsStay checks that the port of a TCP connection never changes in its middle. If another
// conntrack entry has the packet's addresses and ports, the packet is lost. With a different port
// the pod would reply with a reset.
func TestNftPortsStay(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("remote4 242.2.0.0/15", "unmapped4 242.1.0.0/16 | 10.7.0.0/16", "mapped4 10.7.0.0/16 | 242.1.0.0/16")
	at := func(host string, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port))
	}
	const mapped = "242.1.1.2"
	inwards, outwards := nftSegments(l.pod, nftPod), nftSegments(l.remote, nftRemote)
	tests := []struct {
		name     string
		from     *nftNS
		heard    <-chan int
		src, dst func(n int) netip.AddrPort
		// The addresses of the conflicting entry: left by a flow that was handed over, or
		// by a flow in the other direction.
		taken func(n int) (from, to, back netip.AddrPort)
	}{
		{
			"from a server", l.remote, inwards,
			func(int) netip.AddrPort { return at(nftRemote, 8001) }, func(n int) netip.AddrPort { return at(mapped, n) },
			func(n int) (from, to, back netip.AddrPort) { return at(nftPod, n), at(nftRemote, 8001), at(nftPod, n) },
		},
		{
			"from a client", l.pod, outwards,
			func(n int) netip.AddrPort { return at(nftPod, n) }, func(int) netip.AddrPort { return at(nftRemote, 8001) },
			func(n int) (from, to, back netip.AddrPort) { return at(nftRemote, 8001), at(mapped, n), at(nftPodB, n) },
		},
	}
	for i, tt := range tests {
		n := 4000 + 10*i
		nftSegmentTo(tt.from, tt.src(n), tt.dst(n))
		nftAwaitPort(t, tt.heard, int(tt.src(n).Port()))
		n++
		from, to, back := tt.taken(n)
		l.occupy(from, to, back)
		nftSegmentTo(tt.from, tt.src(n), tt.dst(n))
		select {
		case got := <-tt.heard:
			t.Errorf("%s: the packet arrives from port %d", tt.name, got)
		case <-time.After(nftDropTimeout):
		}
	}
}

// nftAwaitPort waits for a segment from a port. Replies to earlier segments may arrive before
// it.
func nftAwaitPort(t *testing.T, ports <-chan int, port int) {
	t.Helper()
	deadline := time.After(nftTimeout)
	for {
		select {
		case got := <-ports:
			if got == port {
				return
			}
		case <-deadline:
			t.Fatalf("nothing arrives from port %d", port)
		}
	}
}

// occupy creates the conntrack entry of an established connection. Its reply direction is to ->
// reply, or reply -> from if from is the remote side.
func (l *nftLab) occupy(from, to, reply netip.AddrPort) {
	l.t.Helper()
	tuple := func(a, b netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{
			Protocol: unix.IPPROTO_TCP, SrcIP: net.IP(a.Addr().AsSlice()), SrcPort: a.Port(), DstIP: net.IP(b.Addr().AsSlice()), DstPort: b.Port(),
		}
	}
	reverse := tuple(to, reply)
	if from.Addr().String() == nftRemote {
		reverse = tuple(reply, from)
	}
	entry := &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET, TimeOut: 60, ProtoInfo: &netlink.ProtoInfoTCP{State: 3}, Forward: tuple(from, to), Reverse: reverse,
	}
	l.node.must(l.node.netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, entry), "create an entry")
}

// nftSegments returns the source ports of TCP segments that reach an address.
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

// nftTCPChecksum returns the checksum of TCP over IPv4 (RFC 9293, 3.1).
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
