package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNftErrors checks that ICMP errors are accepted from the cluster at the remote end of the
// flow, and from clusters on the path. A cluster behind another tunnel cannot lower the path MTU or
// end a connection. Both directions and both families are checked.
func TestNftErrors(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	third := nftNewNS(t)
	third.up("lo")
	nftJoinNS(l.node, "hw-wg2", third, "hw-wg2")
	l.node.address("hw-wg2", "241.0.1.1/24", "fd00:41:1::1/64")
	third.address("hw-wg2", "241.0.1.2/24", "fd00:41:1::2/64")
	l.node.neighbour("hw-wg2", "fd00:41:1::2", third.link("hw-wg2"))
	third.neighbour("hw-wg2", "fd00:41:1::1", l.node.link("hw-wg2"))
	const hub, hub6, other, other6 = "242.8.0.9", "fd00:42:8::9", "242.9.0.9", "fd00:42:9::9"
	third.address("lo", hub+"/32", other+"/32", hub6+"/128", other6+"/128")
	l.remote.address("lo", "242.2.0.77/32", "fd00:42:2::77/128")
	for _, p := range []string{"242.8.0.0/16", "242.9.0.0/16"} {
		l.node.route(p, "241.0.1.2")
	}
	for _, p := range []string{"fd00:42:8::/48", "fd00:42:9::/48"} {
		l.node.route(p, "fd00:41:1::2")
	}
	third.route("0.0.0.0/0", "241.0.1.1")
	third.route("::/0", "fd00:41:1::1")
	const egress, egress6, export, export6 = "242.1.0.7", "fd00:42:1::7", "242.1.0.5", "fd00:42:1::5"
	lines := append(nftSlots(export+" . udp . 80", "pick_one4", 1, nftDest(nftPod, 8080)),
		nftSlots(export6+" . udp . 80", "pick_one6", 1, nftDest(nftPod6, 8080))...)
	lines = append(lines, "egress4 "+nftPod+" | "+egress, "egress6 "+nftPod6+" | "+egress6,
		"remote4 242.2.0.0/16", "remote4 242.8.0.0/15", "remote6 fd00:42:2::/48", "remote6 fd00:42:8::/47",
		"errors4 242.2.0.0/16 . 242.2.0.0/16", "errors4 242.8.0.0/16 . 242.2.0.0/16",
		"errors6 fd00:42:2::/48 . fd00:42:2::/48", "errors6 fd00:42:8::/48 . fd00:42:2::/48",
		// Flows of the other clusters have their own path.
		"errors4 242.9.0.0/16 . 242.9.0.0/16", "errors6 fd00:42:9::/48 . fd00:42:9::/48")
	// opened creates a flow: the pod calls out, or a client calls the pod's export. It returns
	// the flow as its packets left the gateway by the tunnel.
	there := map[bool]net.PacketConn{false: l.remote.listen(nftRemote, "9000"), true: l.remote.listen(nftRemote6, "9000")}
	here := map[bool]net.PacketConn{false: l.pod.listen(nftPod, "8080"), true: l.pod.listen(nftPod6, "8080")}
	opened := map[string]func(six bool) nftFlow{
		"out": func(six bool) nftFlow {
			pod, to, source := nftPod, nftRemote, egress
			if six {
				pod, to, source = nftPod6, nftRemote6, egress6
			}
			conn := l.pod.dial(pod, to, "9000")
			_, err := conn.Write([]byte("hello"))
			l.pod.must(err, "send")
			from := l.remote.receive(there[six])
			return nftFlow{netip.AddrPortFrom(netip.MustParseAddr(source), from.Port()), netip.MustParseAddrPort(net.JoinHostPort(to, "9000"))}
		},
		"in": func(six bool) nftFlow {
			client, at := nftRemote, export
			if six {
				client, at = nftRemote6, export6
			}
			conn := l.remote.dial(client, at, "80")
			_, err := conn.Write([]byte("hello"))
			l.remote.must(err, "send")
			from := l.pod.receive(here[six])
			_, err = here[six].WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from))
			l.pod.must(err, "answer")
			return nftFlow{netip.MustParseAddrPort(net.JoinHostPort(at, "80")), from}
		},
	}
	tests := []struct {
		name  string
		from  *nftNS
		at    [2]string // by family
		kind  [2]byte   // ICMP type and code of IPv4
		kind6 [2]byte   // the same of IPv6; type 0 = none
		want  bool
	}{
		{"the remote end", l.remote, [2]string{nftRemote, nftRemote6}, [2]byte{3, 4}, [2]byte{2, 0}, true},
		{"a router there", l.remote, [2]string{"242.2.0.77", "fd00:42:2::77"}, [2]byte{3, 4}, [2]byte{2, 0}, true},
		{"time exceeded there", l.remote, [2]string{"242.2.0.77", "fd00:42:2::77"}, [2]byte{11, 0}, [2]byte{3, 0}, true},
		{"a cluster on the path", third, [2]string{hub, hub6}, [2]byte{3, 4}, [2]byte{2, 0}, true},
		{"another cluster", third, [2]string{other, other6}, [2]byte{3, 4}, [2]byte{2, 0}, false},
		{"time exceeded in another cluster", third, [2]string{other, other6}, [2]byte{11, 0}, [2]byte{3, 0}, false},
		{"redirect of the remote end", l.remote, [2]string{nftRemote, nftRemote6}, [2]byte{5, 1}, [2]byte{}, false},
	}
	for way, open := range opened {
		for _, tt := range tests {
			for i, kind := range [][2]byte{tt.kind, tt.kind6} {
				if kind[0] == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s, flow %s, %s", tt.name, way, []string{"IPv4", "IPv6"}[i]), func(t *testing.T) {
					l.elements(lines...)
					flow := open(i == 1)
					got := l.pod.receivesError(i == 1, func() {
						tt.from.sendError(netip.MustParseAddr(tt.at[i]), kind, flow)
						// The second error always arrives, because it comes
						// from the remote end.
						l.remote.sendError(netip.MustParseAddr([2]string{nftRemote, nftRemote6}[i]), [2]byte{nftLastError, nftLastCode}, flow)
					}, kind)
					if got != tt.want {
						t.Errorf("the pod gets the error: %t, want %t", got, tt.want)
					}
				})
			}
		}
	}
	l.expectDropCount("error", 8) // NAT itself drops redirects about flows that it translates
}

// Type and code of the last ICMP error of a test: host unreachable for IPv4, time exceeded in
// reassembly for IPv6.
const (
	nftLastError = 3
	nftLastCode  = 1
)

// nftFlow is a flow with the addresses of its packets from the gateway into the tunnel.
type nftFlow struct{ from, to netip.AddrPort }

// listen opens a UDP socket at an address and a port.
func (n *nftNS) listen(address, port string) net.PacketConn {
	n.t.Helper()
	var conn net.PacketConn
	var err error
	n.inside(func() { conn, err = net.ListenPacket("udp", net.JoinHostPort(address, port)) })
	n.must(err, "listen on "+address)
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// receive waits for a datagram and returns its sender.
func (n *nftNS) receive(conn net.PacketConn) netip.AddrPort {
	n.t.Helper()
	n.must(conn.SetReadDeadline(time.Now().Add(nftTimeout)), "set a deadline")
	_, from, err := conn.ReadFrom(make([]byte, 64))
	n.must(err, "receive")
	return netip.MustParseAddrPort(from.String())
}

// sendError sends an ICMP error about a packet of a flow to its sender.
func (n *nftNS) sendError(from netip.Addr, kind [2]byte, flow nftFlow) {
	n.t.Helper()
	inner, network := nftDatagram(flow), "ip4:icmp"
	if from.Is6() {
		network = "ip6:ipv6-icmp" // the kernel writes the checksum
	}
	message := append([]byte{kind[0], kind[1], 0, 0, 0, 0, 0x05, 0x14}, inner...) // MTU 1300
	if from.Is4() {
		binary.BigEndian.PutUint16(message[2:], nftChecksum(message))
	}
	n.inside(func() {
		conn, err := net.ListenPacket(network, from.String())
		n.must(err, "open an ICMP socket")
		defer func() { _ = conn.Close() }()
		_, err = conn.WriteTo(message, &net.IPAddr{IP: flow.from.Addr().AsSlice()})
		n.must(err, "send an ICMP error")
	})
}

// nftDatagram returns a datagram of a flow, from its IP header on.
func nftDatagram(flow nftFlow) []byte {
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp, flow.from.Port())
	binary.BigEndian.PutUint16(udp[2:], flow.to.Port())
	binary.BigEndian.PutUint16(udp[4:], 1380)
	if flow.from.Addr().Is6() {
		head := make([]byte, 40)
		head[0], head[6], head[7] = 0x60, unix.IPPROTO_UDP, 63
		binary.BigEndian.PutUint16(head[4:], 1380)
		copy(head[8:], flow.from.Addr().AsSlice())
		copy(head[24:], flow.to.Addr().AsSlice())
		return append(head, udp...)
	}
	head := make([]byte, 20)
	head[0], head[8], head[9] = 0x45, 63, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(head[2:], 1400)
	copy(head[12:], flow.from.Addr().AsSlice())
	copy(head[16:], flow.to.Addr().AsSlice())
	binary.BigEndian.PutUint16(head[10:], nftChecksum(head))
	return append(head, udp...)
}

// receivesError reports whether an ICMP error of a type arrives before the last error of send.
func (n *nftNS) receivesError(six bool, send func(), kind [2]byte) bool {
	n.t.Helper()
	network := "ip4:icmp"
	if six {
		network = "ip6:ipv6-icmp"
	}
	var conn net.PacketConn
	var err error
	n.inside(func() { conn, err = net.ListenPacket(network, "") })
	n.must(err, "open an ICMP socket")
	defer func() { _ = conn.Close() }()
	send()
	n.must(conn.SetReadDeadline(time.Now().Add(nftTimeout)), "set a deadline")
	heard, buf := false, make([]byte, 256)
	for {
		_, _, err := conn.ReadFrom(buf)
		n.must(err, "receive the last ICMP error")
		switch [2]byte(buf) {
		case [2]byte{nftLastError, nftLastCode}:
			return heard
		case kind:
			heard = true
		}
	}
}
