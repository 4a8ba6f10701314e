package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Flags of TCP segments.
const (
	flagSyn = 0x02
	flagRst = 0x04
	flagAck = 0x10
)

// TestNftServerFirst sends packets of a server through a gateway that does not know its connection.
// The packet leaves with the address that its client knows. If there are several such addresses, or
// if conntrack cannot assign the packet, it does not leave.
func TestNftServerFirst(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements(append(nftSharedLines("242.1.0.1"),
		"reverse4 10.7.1.2 . tcp . 8080 | 242.1.0.5 . 80", "ambiguous4 10.7.1.3 . tcp . 8080")...)
	export := netip.MustParseAddrPort("242.1.0.5:80")
	tests := []struct {
		name  string
		pod   string
		flags byte
		want  netip.AddrPort
	}{
		{"in the middle of a stream", nftPod, flagAck, export},
		{"ambiguous", nftPodB, flagAck, netip.AddrPort{}},
		{"a port without a backend", nftPodC, flagAck, netip.MustParseAddrPort("242.1.0.1:8080")},
		{"reset", nftPod, flagRst, netip.AddrPort{}},
		{"answer to an unknown SYN", nftPod, flagSyn | flagAck, netip.AddrPort{}},
		{"new connection from a backend's port", nftPodB, flagSyn, netip.MustParseAddrPort("242.1.0.1:8080")},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := netip.AddrPortFrom(netip.MustParseAddr(nftRemote), uint16(5555+i))
			got := l.send(l.pod, l.remote, nftTCPSegment{from: netip.MustParseAddrPort(tt.pod + ":8080"), to: client, flags: tt.flags})
			if got != tt.want {
				t.Errorf("came from %v, want %v", got, tt.want)
			}
		})
	}
}

// TestNftUnsolicited checks that a pod on a gateway's own node receives no packets of an unknown
// connection. The pod never called their source address.
func TestNftUnsolicited(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("multi_pod4 "+nftRemote, "direct4 10.7.0.0/16")
	tests := []struct {
		name, from string
		flags      byte
		passes     bool
	}{
		{"an export in the middle of a stream", nftRemote, flagAck, false},
		{"an export that connects", nftRemote, flagSyn, true},
		{"another address", nftOther, flagAck, true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from := netip.AddrPortFrom(netip.MustParseAddr(tt.from), 80)
			pod := netip.AddrPortFrom(netip.MustParseAddr(nftPod), uint16(6555+i))
			got := l.send(l.remote, l.pod, nftTCPSegment{from: from, to: pod, flags: tt.flags})
			if passes := got == from; passes != tt.passes {
				t.Errorf("came from %v, want that it passes: %v", got, tt.passes)
			}
		})
	}
}

// TestNftUnsolicitedToNodes checks that packets of an unknown connection reach the pods of other
// nodes without VXLAN, as they do in VXLAN. The gateway may have replaced a failed gateway, and the
// client may send nothing.
func TestNftUnsolicitedToNodes(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	node := nftNewNS(t)
	node.up("lo")
	nftJoinNS(l.node, "lan0", node, "eth0")
	l.node.ip("address add 192.0.2.2/24 dev lan0", "route add 10.7.2.0/24 via 192.0.2.1 dev lan0")
	node.ip("address add 192.0.2.1/24 dev eth0", "address add 10.7.2.9/32 dev lo", "route add default via 192.0.2.2")
	from, pod := netip.MustParseAddrPort(nftRemote+":80"), netip.MustParseAddrPort("10.7.2.9:6555")
	server := []string{"multi_pod4 " + nftRemote, "direct4 10.7.0.0/16"}
	for hop, passes := range map[string]bool{"192.0.2.1 . lan0": true, "192.0.2.9 . lan0": false, "192.0.2.1 . lan1": false} {
		l.elements(append(slices.Clone(server), "node_hops4 "+hop)...)
		if got := l.send(l.remote, node, nftTCPSegment{from: from, to: pod, flags: flagAck}); (got == from) != passes {
			t.Errorf("next hop %s: came from %v, want that it passes: %v", hop, got, passes)
		}
		pod = netip.AddrPortFrom(pod.Addr(), pod.Port()+1) // another flow
	}
}

// TestNftServerFirstUDP is TestNftServerFirst for datagrams of both families.
func TestNftServerFirstUDP(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements(append(nftSharedLines("242.1.0.1"),
		"reverse4 10.7.1.2 . udp . 8080 | 242.1.0.5 . 80", "ambiguous4 10.7.1.3 . udp . 8080",
		"reverse6 fd00:7:1::2 . udp . 8080 | fd00:42:1::5 . 80", "ambiguous6 fd00:7:1::3 . udp . 8080")...)
	to := map[int]string{4: nftRemote + ":9000", 6: "[" + nftRemote6 + "]:9000"}
	l.remote.serve("udp", to[4], to[6])
	if got := l.mustReply(l.pod, "udp", nftPod+":8080", to[4]); got.client != "242.1.0.5" {
		t.Errorf("came from %s", got.client)
	}
	if got := l.mustReply(l.pod, "udp", "["+nftPod6+"]:8080", to[6]); got.client != "fd00:42:1::5" {
		t.Errorf("came from %s", got.client)
	}
	l.expectDropped(l.pod, "udp", nftPodB+":8080", to[4])
	l.expectDropped(l.pod, "udp", "["+nftPodB6+"]:8080", to[6])
	if got := l.mustReply(l.pod, "udp", nftPodC+":8080", to[4]); got.client != "242.1.0.1" {
		t.Errorf("no backend, and came from %s", got.client)
	}
}

// TestNftAmbiguousWaitsForItsClient checks that after the client sends, the gateway knows the
// connection. Then packets of an ambiguous backend reach the client from the address that it
// called.
func TestNftAmbiguousWaitsForItsClient(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	lines := append(nftSharedLines("242.1.0.1"), "ambiguous4 10.7.1.2 . tcp . 8080")
	for _, export := range []string{"242.1.0.5", "242.1.0.6"} {
		lines = append(lines, nftSlots(export+" . tcp . 80", "pick_one4", 1, nftDest(nftPod, 8080))...)
	}
	l.elements(lines...)
	l.waitUntilQuiet()
	server := netip.MustParseAddrPort(nftPod + ":8080")
	for i, export := range []string{"242.1.0.5:80", "242.1.0.6:80"} {
		client := netip.AddrPortFrom(netip.MustParseAddr(nftRemote), uint16(6000+i))
		push := nftTCPSegment{from: server, to: client, flags: flagAck}
		if got := l.send(l.pod, l.remote, push); got.IsValid() {
			t.Errorf("before the client sent, a packet came from %v", got)
		}
		speak := nftTCPSegment{from: client, to: netip.MustParseAddrPort(export), flags: flagAck}
		if got := l.send(l.remote, l.pod, speak); got != client {
			t.Fatalf("the client's packet came from %v", got)
		}
		if got := l.send(l.pod, l.remote, push); got.String() != export {
			t.Errorf("after the client sent, a packet came from %v, want %s", got, export)
		}
	}
}

// TestNftWindowMoved returns a connection to a gateway after another gateway forwarded it. Its
// sequence numbers are outside the window that this gateway saw.
func TestNftWindowMoved(t *testing.T) {
	t.Parallel()
	for _, liberal := range []string{"0", "1"} {
		t.Run("liberal "+liberal, func(t *testing.T) {
			t.Parallel()
			l := nftNewLab(t)
			l.node.sysctl("netfilter/nf_conntrack_tcp_be_liberal", liberal)
			l.elements(append(nftSharedLines("242.1.0.1"), "keep_source4 10.7.0.0/16")...)
			l.waitUntilQuiet()
			pod, remote := netip.MustParseAddrPort(nftPod+":40000"), netip.MustParseAddrPort(nftRemote+":80")
			steps := []struct {
				from, to *nftNS
				s        nftTCPSegment
			}{
				{l.pod, l.remote, nftTCPSegment{from: pod, to: remote, seq: 1000, flags: flagSyn}},
				{l.remote, l.pod, nftTCPSegment{from: remote, to: pod, seq: 5000, ack: 1001, flags: flagSyn | flagAck}},
				{l.pod, l.remote, nftTCPSegment{from: pod, to: remote, seq: 1001, ack: 5001, flags: flagAck}},
			}
			for i, step := range steps {
				if !l.send(step.from, step.to, step.s).IsValid() {
					t.Fatalf("step %d of the handshake did not arrive", i)
				}
			}
			const elsewhere = 50_000_000 // bytes by another path
			far := nftTCPSegment{from: pod, to: remote, seq: 1001 + elsewhere, ack: 5001 + elsewhere, flags: flagAck}
			if came := l.send(l.pod, l.remote, far).IsValid(); came != (liberal == "1") {
				t.Errorf("arrived: %v", came)
			}
		})
	}
}

// TestNftSegmentsFitTheRoute checks that the MTU of a route counts if it is below the tunnel's MTU.
func TestNftSegmentsFitTheRoute(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/32", "direct4 10.7.0.0/16", "direct6 fd00:7::/32")
	for prefix, via := range map[string]string{"242.0.0.0/8": nftPeer, "fd00:42::/32": nftPeer6} {
		_, dst, err := net.ParseCIDR(prefix)
		l.node.must(err, prefix)
		l.node.must(l.node.netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via), MTU: 1300}), "change route "+prefix)
	}
	l.remote.serve("tcp", nftRemote+":80", "["+nftRemote6+"]:80")
	l.pod.serve("tcp", nftPod+":80", "["+nftPod6+"]:80")
	tests := []struct {
		from   *nftNS
		source string
		to     string
		most   int
	}{
		{l.pod, "", nftRemote, 1260}, {l.pod, "", nftRemote6, 1240},
		{l.remote, nftRemote + ":0", nftPod, 1260}, {l.remote, "[" + nftRemote6 + "]:0", nftPod6, 1240},
	}
	for _, tt := range tests {
		got := l.mustReply(tt.from, "tcp", tt.source, net.JoinHostPort(tt.to, "80"))
		if got.segment > tt.most || got.segment < tt.most-12 {
			t.Errorf("segments to the caller of %s: %d bytes, want %d", tt.to, got.segment, tt.most)
		}
	}
}

// waitUntilQuiet drops resets of the pod and of the remote host, which would reply with them to
// forged segments.
func (l *nftLab) waitUntilQuiet() {
	l.t.Helper()
	for _, ns := range []*nftNS{l.pod, l.remote} {
		ns.nft("table inet quiet { chain out { type filter hook output priority 0; tcp flags & (syn | rst) == rst drop; }; }")
	}
}

// nftTCPSegment is a forged TCP segment.
type nftTCPSegment struct {
	from, to netip.AddrPort
	seq, ack uint32
	flags    byte
}

// send sends a segment from src and returns its source as received in dst, by the destination
// port; zero if it did not arrive.
func (l *nftLab) send(src, dst *nftNS, s nftTCPSegment) netip.AddrPort {
	l.t.Helper()
	var out, in net.PacketConn
	var err error
	dst.inside(func() { in, err = net.ListenPacket("ip4:tcp", "0.0.0.0") })
	dst.must(err, "listen for segments")
	defer in.Close()
	src.inside(func() { out, err = net.ListenPacket("ip4:tcp", s.from.Addr().String()) })
	src.must(err, "open a socket for segments")
	defer out.Close()
	_, err = out.WriteTo(s.bytes(), &net.IPAddr{IP: s.to.Addr().AsSlice()})
	src.must(err, "send a segment")
	dst.must(in.SetReadDeadline(time.Now().Add(2*nftDropTimeout)), "set deadline")
	mark := fmt.Sprint(s.seq, s.ack, s.flags)
	buf := make([]byte, 1500)
	for {
		n, source, err := in.ReadFrom(buf)
		if err != nil {
			return netip.AddrPort{}
		}
		if n >= 20 && mark == fmt.Sprint(binary.BigEndian.Uint32(buf[4:]), binary.BigEndian.Uint32(buf[8:]), buf[13]) {
			addr, _ := netip.AddrFromSlice(source.(*net.IPAddr).IP.To4())
			return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(buf))
		}
	}
}

// bytes returns the segment with a correct checksum.
func (s nftTCPSegment) bytes() []byte {
	segment := make([]byte, 20, 24)
	binary.BigEndian.PutUint16(segment, s.from.Port())
	binary.BigEndian.PutUint16(segment[2:], s.to.Port())
	binary.BigEndian.PutUint32(segment[4:], s.seq)
	binary.BigEndian.PutUint32(segment[8:], s.ack)
	segment[12], segment[13] = 5<<4, s.flags
	binary.BigEndian.PutUint16(segment[14:], 1024)
	if s.flags&flagSyn == 0 {
		segment = append(segment, "push"...)
	}
	pseudo := slices.Concat(s.from.Addr().AsSlice(), s.to.Addr().AsSlice(), []byte{0, unix.IPPROTO_TCP, 0, byte(len(segment))}, segment)
	binary.BigEndian.PutUint16(segment[16:], nftChecksum(pseudo))
	return segment
}

// nftChecksum returns the Internet checksum (RFC 1071) of an even number of bytes.
func nftChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
