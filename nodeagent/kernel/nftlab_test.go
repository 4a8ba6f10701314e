package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nftLab has three network namespaces in a row: a pod, its node, and another cluster behind the
// node's "tunnel" hw-wg1 (a veth). The other cluster's addresses are on one loopback.
type nftLab struct {
	t                 *testing.T
	pod, node, remote *nftNS
}

// Addresses of the lab. Pods are in 10.7.0.0/16 and fd00:7::/48.
const (
	nftPod, nftPod6         = "10.7.1.2", "fd00:7:1::2"
	nftPodGW, nftPodGW6     = "10.7.1.1", "fd00:7:1::1"
	nftPodB, nftPodC        = "10.7.1.3", "10.7.1.4" // more addresses of the pod
	nftPodB6, nftPodC6      = "fd00:7:1::3", "fd00:7:1::4"
	nftTunAddr, nftTunAddr6 = "241.0.0.1", "fd00:41::1"
	nftPeer, nftPeer6       = "241.0.0.2", "fd00:41::2"
	nftRemote, nftRemote6   = "242.2.0.9", "fd00:42:2::9"
	nftOther                = "242.3.0.9"
	nftFlat                 = "10.9.0.9"
	nftVIP, nftVIP6         = "243.0.0.1", "fd00:43::1"
)

const (
	nftTimeout     = 3 * time.Second        // a successful test is much faster
	nftDropTimeout = 250 * time.Millisecond // a dropped packet has no visible effect, however long the test waits
)

func nftNewLab(t *testing.T) *nftLab {
	t.Helper()
	l := &nftLab{t: t, pod: nftNewNS(t), node: nftNewNS(t), remote: nftNewNS(t)}
	for _, ns := range []*nftNS{l.pod, l.node, l.remote} {
		ns.up("lo")
		ns.sysctl("ipv6/conf/default/accept_dad", "0") // else the first seconds have no IPv6
		ns.sysctl("ipv4/ip_forward", "1")
		ns.sysctl("ipv6/conf/all/forwarding", "1")
	}
	nftJoinNS(l.pod, "eth0", l.node, "pod0")
	nftJoinNS(l.node, "hw-wg1", l.remote, "hw-wg1")
	l.pod.address("eth0", nftPod+"/24", nftPodB+"/24", nftPodC+"/24", nftPod6+"/64", nftPodB6+"/64", nftPodC6+"/64")
	l.node.address("pod0", nftPodGW+"/24", nftPodGW6+"/64")
	l.node.address("hw-wg1", nftTunAddr+"/24", nftTunAddr6+"/64")
	l.remote.address("hw-wg1", nftPeer+"/24", nftPeer6+"/64")
	l.node.neighbour("hw-wg1", nftPeer6, l.remote.link("hw-wg1"))
	l.remote.neighbour("hw-wg1", nftTunAddr6, l.node.link("hw-wg1"))
	l.remote.address("lo", nftRemote+"/32", nftOther+"/32", nftFlat+"/32", nftRemote6+"/128")
	l.pod.route("0.0.0.0/0", nftPodGW)
	l.pod.route("::/0", nftPodGW6)
	for _, p := range []string{"242.0.0.0/8", "243.0.0.0/8", "10.9.0.0/16"} {
		l.node.route(p, nftPeer)
	}
	l.node.route("fd00:42::/32", nftPeer6)
	l.node.route("fd00:43::/32", nftPeer6)
	l.remote.route("0.0.0.0/0", nftTunAddr)
	l.remote.route("::/0", nftTunAddr6)
	nftApplyTable(t, l.node, nftSampleTable())
	return l
}

// elements sets the lines (set key | value) as all elements of the node's sets, and deletes all
// conntrack entries.
func (l *nftLab) elements(lines ...string) {
	l.t.Helper()
	l.change(lines...)
	for _, ns := range []*nftNS{l.pod, l.node, l.remote} {
		if _, err := ns.netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, nftAllFlows{}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// change sets the elements, and keeps the conntrack entries.
func (l *nftLab) change(lines ...string) {
	l.t.Helper()
	// All services of the tests are in the node's own blocks, also 243.0.0.1.
	lines = append(slices.Clone(lines), "blocks4 242.0.0.0/7", "blocks6 fd00:42::/31",
		"pods4 10.7.0.0/16", "pods6 fd00:7::/32", "peers4 "+nftPeer, "peers6 "+nftPeer6)
	// A prefix that replaces an overlapping one needs a second pass.
	for range 2 {
		if _, err := nftConverge(l.t, l.node, nftParse(lines...)); err == nil {
			break
		}
	}
	nftMustConverge(l.t, l.node, nftParse(lines...))
}

// nftAllFlows matches every conntrack entry.
type nftAllFlows struct{}

func (nftAllFlows) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

func (n *nftNS) must(err error, what string) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

func (n *nftNS) link(name string) netlink.Link {
	n.t.Helper()
	link, err := n.netlink.LinkByName(name)
	n.must(err, "link "+name)
	return link
}

func (n *nftNS) up(name string) {
	n.t.Helper()
	n.must(n.netlink.LinkSetUp(n.link(name)), "set up "+name)
}

// nftJoinNS creates a veth pair between two namespaces.
func nftJoinNS(a *nftNS, nameA string, b *nftNS, nameB string) {
	a.t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(b.fd)}
	a.must(a.netlink.LinkAdd(veth), "add veth "+nameA)
	a.up(nameA)
	b.up(nameB)
}

func (n *nftNS) address(link string, addresses ...string) {
	n.t.Helper()
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		n.must(err, a)
		addr.Flags = unix.IFA_F_NODAD
		n.must(n.netlink.AddrAdd(n.link(link), addr), "add address "+a)
	}
}

// neighbour adds a permanent neighbour, because tunnels have no neighbour discovery.
func (n *nftNS) neighbour(link, address string, peer netlink.Link) {
	n.t.Helper()
	n.must(n.netlink.NeighSet(&netlink.Neigh{
		LinkIndex: n.link(link).Attrs().Index, IP: net.ParseIP(address), State: netlink.NUD_PERMANENT,
		HardwareAddr: peer.Attrs().HardwareAddr,
	}), "add neighbour "+address)
}

func (n *nftNS) route(prefix, via string) {
	n.t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	n.must(err, prefix)
	n.must(n.netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}), "add route "+prefix)
}

func (n *nftNS) sysctl(name, value string) {
	n.t.Helper()
	n.inside(func() { n.must(os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644), "set "+name) })
}

// serve replies to every connection or datagram to an address and port with "local-address
// remote-address", as the server sees them.
func (n *nftNS) serve(network string, addresses ...string) {
	n.t.Helper()
	for _, a := range addresses {
		n.inside(func() {
			if strings.HasPrefix(network, "udp") {
				n.serveUDP(a)
			} else {
				n.serveTCP(a)
			}
		})
	}
}

func (n *nftNS) serveTCP(address string) {
	listener, err := net.Listen("tcp", address)
	n.must(err, "listen on "+address)
	n.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s %s %d\n", address, nftHost(conn.RemoteAddr()), nftSegment(conn))
			conn.Close()
		}
	}()
}

func (n *nftNS) serveUDP(address string) {
	conn, err := net.ListenPacket("udp", address)
	n.must(err, "listen on "+address)
	n.t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %s 0\n", address, nftHost(from)), from)
		}
	}()
}

// nftHost returns the address without the port.
func nftHost(a net.Addr) string { return netip.MustParseAddrPort(a.String()).Addr().String() }

// nftSegment returns the maximum segment size of a TCP connection.
func nftSegment(conn net.Conn) int {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	size := 0
	_ = raw.Control(func(fd uintptr) { size, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	return size
}

// dial opens a UDP socket from one address to another address and port.
func (n *nftNS) dial(from, to, port string) *net.UDPConn {
	n.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	var conn net.Conn
	var err error
	n.inside(func() { conn, err = dialer.Dial("udp", net.JoinHostPort(to, port)) })
	n.must(err, "open a socket from "+from+" to "+to)
	n.t.Cleanup(func() { conn.Close() })
	return conn.(*net.UDPConn)
}

// nftReply is a reply of serve.
type nftReply struct {
	server, client string
	segment        int
}

// call calls from an address (with port, or "" for any) to another, and returns the reply.
func (n *nftNS) call(network, from, to string, timeout time.Duration) (reply nftReply, err error) {
	n.t.Helper()
	n.inside(func() { reply, err = nftCall(network, from, to, timeout) })
	return reply, err
}

func nftCall(network, from, to string, timeout time.Duration) (reply nftReply, err error) {
	dialer := net.Dialer{Timeout: timeout}
	if from != "" {
		at := netip.MustParseAddrPort(from)
		dialer.LocalAddr = net.TCPAddrFromAddrPort(at)
		if network == "udp" {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(at)
		}
	}
	conn, err := dialer.DialContext(context.Background(), network, to)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetLinger(0) // frees the source port at once
	} else {
		// A VXLAN frame, because the rules for its port drop all other packets.
		_, err = conn.Write(nftFrameFrom(netip.MustParseAddr("10.7.9.9")))
	}
	if err := errors.Join(err, conn.SetReadDeadline(time.Now().Add(timeout))); err != nil {
		return reply, err
	}
	buf := make([]byte, 256)
	size, err := conn.Read(buf)
	if err != nil && !(errors.Is(err, io.EOF) && size > 0) {
		return reply, err
	}
	_, err = fmt.Sscan(string(buf[:size]), &reply.server, &reply.client, &reply.segment)
	return reply, err
}

// mustReply checks that a call arrives, and returns the addresses that the server saw.
func (l *nftLab) mustReply(from *nftNS, network, source, to string) nftReply {
	l.t.Helper()
	got, err := from.call(network, source, to, nftTimeout)
	if err != nil {
		l.t.Errorf("%s to %s: %v", network, to, err)
	}
	return got
}

// expectDropped checks that a call gets no reply.
func (l *nftLab) expectDropped(from *nftNS, network, source, to string) {
	l.t.Helper()
	got, err := from.call(network, source, to, nftDropTimeout)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		l.t.Errorf("%s from %s to %s: reply %v, error %v; want no reply", network, source, to, got, err)
	}
}

// expectRefused checks that a call is refused, and does not time out.
func (l *nftLab) expectRefused(from *nftNS, network, to string, want error) {
	l.t.Helper()
	if _, err := from.call(network, "", to, nftTimeout); !errors.Is(err, want) {
		l.t.Errorf("%s to %s: error %v, want %v", network, to, err, want)
	}
}
