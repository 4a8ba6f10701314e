package conntrack

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// testNetwork is a cluster with shared egress, two gateways a and b, and another cluster behind them:
//
//	pod - node -(hw-vx0)- a, b -(hw-wg1)- far - server
//
// The pod connects to a service address, which the node translates to the export. The gateway
// translates the source to the shared address, and far forwards to the server.
type testNetwork struct {
	t                            testing.TB
	pod, node, a, b, far, server *space
}

// testTimeout exceeds the duration of any successful step, also on a busy machine.
const testTimeout = 30 * time.Second

// resendInterval is the interval at which a datagram without a reply is repeated.
const resendInterval = 500 * time.Millisecond

const (
	podIP, podIP6            = "10.7.1.5", "fd00:7::5"
	vipIP, vipIP6            = "243.0.0.1", "fd00:43::1"
	exportIP, exportIP6      = "242.2.0.32", "fd00:42:2::32"
	sharedIP, sharedIP6      = "242.1.0.1", "fd00:42:1::1"
	backendIP, backendIP6    = "10.8.1.2", "fd00:8::2"
	servicePort, backendPort = 80, 8080
)

var remotePrefixes = []netip.Prefix{netip.MustParsePrefix("242.2.0.0/16"), netip.MustParsePrefix("fd00:42:2::/48")}

func newTestNetwork(t testing.TB) *testNetwork {
	t.Helper()
	r := &testNetwork{t: t, pod: newSpace(t), node: newSpace(t), a: newSpace(t), b: newSpace(t), far: newSpace(t), server: newSpace(t)}
	tunnel(r.pod, "eth0", r.node, "pod0")
	tunnel(r.far, "srv0", r.server, "eth0")
	r.connect()
	r.pod.IP("addr add "+podIP+"/24 dev eth0", "addr add "+podIP6+"/64 dev eth0 nodad",
		"route add default via 10.7.1.1", "route add default via fd00:7::1")
	r.node.IP("addr add 10.7.1.1/24 dev pod0", "addr add fd00:7::1/64 dev pod0 nodad")
	r.server.IP("addr add "+backendIP+"/24 dev eth0", "addr add "+backendIP6+"/64 dev eth0 nodad",
		"route add default via 10.8.1.1", "route add default via fd00:8::1")
	r.far.IP("addr add 10.8.1.1/24 dev srv0", "addr add fd00:8::1/64 dev srv0 nodad")
	r.writeRules()
	for _, s := range []*space{r.node, r.a, r.b, r.far} {
		s.sysctl("netfilter/nf_conntrack_tcp_be_liberal", "1")
	}
	r.move("a")
	return r
}

// connect connects the node and the gateways with a bridge on the node, with fixed neighbours as
// on hw-vx0, and the gateways with far.
func (r *testNetwork) connect() {
	r.node.IP("link add hw-vx0 address 02:00:00:00:00:01 type bridge", "link set hw-vx0 up",
		"addr add 192.0.2.1/24 dev hw-vx0", "addr add 2001:db8::1/64 dev hw-vx0 nodad")
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil {
		// Frames that the bridge forwards between the gateways do not concern the node.
		r.node.sysctl("bridge/bridge-nf-call-iptables", "0")
		r.node.sysctl("bridge/bridge-nf-call-ip6tables", "0")
	}
	for i, g := range []*space{r.a, r.b} {
		n := i + 2
		tunnel(g, "hw-vx0", r.node, fmt.Sprintf("port%d", n))
		r.node.IP(fmt.Sprintf("link set port%d master hw-vx0", n))
		g.IP(fmt.Sprintf("link set hw-vx0 address 02:00:00:00:00:0%d", n),
			fmt.Sprintf("addr add 192.0.2.%d/24 dev hw-vx0", n), fmt.Sprintf("addr add 2001:db8::%d/64 dev hw-vx0 nodad", n),
			"route add 10.7.1.0/24 via 192.0.2.1", "route add fd00:7::/64 via 2001:db8::1",
			"route add blackhole 242.1.0.0/16", "route add blackhole fd00:42:1::/48")
		r.node.IP(fmt.Sprintf("neigh add 192.0.2.%d lladdr 02:00:00:00:00:0%d dev hw-vx0 nud permanent", n, n),
			fmt.Sprintf("neigh add 2001:db8::%d lladdr 02:00:00:00:00:0%d dev hw-vx0 nud permanent", n, n))
		far := fmt.Sprintf("wg%d", n)
		tunnel(g, "hw-wg1", r.far, far)
		g.IP(fmt.Sprintf("addr add 241.0.%d.1/24 dev hw-wg1", n), fmt.Sprintf("addr add fd00:41:%d::1/64 dev hw-wg1 nodad", n),
			fmt.Sprintf("route add 242.2.0.0/16 via 241.0.%d.2", n), fmt.Sprintf("route add fd00:42:2::/48 via fd00:41:%d::2", n))
		r.far.IP(fmt.Sprintf("addr add 241.0.%d.2/24 dev %s", n, far), fmt.Sprintf("addr add fd00:41:%d::2/64 dev %s nodad", n, far))
	}
}

// writeRules writes a short version of the rules of nodeagent/kernel.
func (r *testNetwork) writeRules() {
	services := func(from, to, from6, to6 string, port int) string {
		return fmt.Sprintf(`table inet t {
			chain pre { type nat hook prerouting priority -110;
				ip daddr %[1]s meta l4proto { tcp, udp } th dport 80 dnat ip to %[2]s:%[5]d
				ip6 daddr %[3]s meta l4proto { tcp, udp } th dport 80 dnat ip6 to [%[4]s]:%[5]d
			}
		}`, from, to, from6, to6, port)
	}
	r.node.NFT(services(vipIP, exportIP, vipIP6, exportIP6, servicePort))
	r.node.NFT(`table inet t { chain post { type nat hook postrouting priority 90;
		ip daddr 242.2.0.0/16 snat ip to ip saddr
		ip6 daddr fd00:42:2::/48 snat ip6 to ip6 saddr
	}
}`)
	r.far.NFT(services(exportIP, backendIP, exportIP6, backendIP6, backendPort))
	for _, g := range []*space{r.a, r.b} {
		g.NFT(`table inet t { chain post { type nat hook postrouting priority 90;
			oifname hw-wg1 ip daddr 242.2.0.0/16 snat ip to ` + sharedIP + `
			oifname hw-wg1 ip6 daddr fd00:42:2::/48 snat ip6 to ` + sharedIP6 + `
		}
}`)
	}
}

// move routes the path over one gateway, on both sides.
func (r *testNetwork) move(to string) {
	r.t.Helper()
	n := map[string]int{"a": 2, "b": 3}[to]
	r.node.IP(fmt.Sprintf("route replace 242.2.0.0/16 via 192.0.2.%d dev hw-vx0", n),
		fmt.Sprintf("route replace 243.0.0.0/16 via 192.0.2.%d dev hw-vx0", n),
		fmt.Sprintf("route replace fd00:42:2::/48 via 2001:db8::%d dev hw-vx0", n),
		fmt.Sprintf("route replace fd00:43::/48 via 2001:db8::%d dev hw-vx0", n))
	r.far.IP(fmt.Sprintf("route replace 242.1.0.0/16 via 241.0.%d.1", n), fmt.Sprintf("route replace fd00:42:1::/48 via fd00:41:%d::1", n))
}

// session is a connection of the pod: the server sends, the pod listens.
type session struct {
	t      testing.TB
	client net.Conn
	push   func(text string)

	datagrams bool
}

func service(network, v4, v6 string, port int) string {
	host := v4
	if network[3] == '6' {
		host = v6
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// open sends a first message of the client, and waits until the server received it.
func (r *testNetwork) open(network string) *session {
	r.t.Helper()
	if network[:3] == "tcp" {
		return r.openTCP(network)
	}
	var listener net.PacketConn
	s := r.dial(network, func() (err error) {
		listener, err = net.ListenPacket(network, service(network, backendIP, backendIP6, backendPort))
		return err
	})
	r.t.Cleanup(func() { listener.Close() })
	from := s.awaitClient(listener)
	s.push = func(text string) {
		r.t.Helper()
		_, err := listener.WriteTo([]byte(text), from)
		r.must(err)
	}
	return s
}

// awaitClient sends hello until the server receives it, and returns the sender's address. A
// first datagram may be lost: neighbours are resolved with link-local addresses, whose
// duplicate detection takes at least a second at first.
func (s *session) awaitClient(listener net.PacketConn) net.Addr {
	s.t.Helper()
	buffer := make([]byte, 64)
	for end := time.Now().Add(testTimeout); time.Now().Before(end); {
		if err := listener.SetReadDeadline(time.Now().Add(resendInterval)); err != nil {
			s.t.Fatal(err)
		}
		if _, from, err := listener.ReadFrom(buffer); err == nil {
			return from
		}
		if _, err := s.client.Write([]byte("hello")); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Fatal("nothing arrives at the server")
	return nil
}

func (r *testNetwork) openTCP(network string) *session {
	r.t.Helper()
	var listener net.Listener
	s := r.dial(network, func() (err error) {
		listener, err = net.Listen(network, service(network, backendIP, backendIP6, backendPort))
		return err
	})
	r.t.Cleanup(func() { listener.Close() })
	conn, err := listener.Accept()
	r.must(err)
	r.t.Cleanup(func() { conn.Close() })
	s.push = func(text string) {
		r.t.Helper()
		_, err := conn.Write([]byte(text))
		r.must(err)
	}
	return s
}

func (r *testNetwork) dial(network string, listen func() error) *session {
	r.t.Helper()
	s := &session{t: r.t, datagrams: network[:3] == "udp"}
	r.server.Inside(func() { r.must(listen()) })
	r.pod.Inside(func() {
		var err error
		// On a busy machine, a neighbour that does not reply for three seconds is unreachable
		// for a while.
		for end := time.Now().Add(testTimeout); s.client == nil && time.Now().Before(end); {
			s.client, err = net.DialTimeout(network, service(network, vipIP, vipIP6, servicePort), testTimeout)
		}
		r.must(err)
	})
	r.t.Cleanup(func() { s.client.Close() })
	_, err := s.client.Write([]byte("hello"))
	r.must(err)
	return s
}

func (r *testNetwork) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// receives reports whether the client receives a text in time. Any error except a timeout fails
// the test: a refresh packet must not disturb the client.
func (s *session) receives(text string, timeout time.Duration) bool {
	s.t.Helper()
	end := time.Now().Add(timeout)
	if err := s.client.SetReadDeadline(end); err != nil {
		s.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	for {
		n, err := s.client.Read(buffer)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return false
		}
		if err != nil {
			s.t.Fatalf("the client's connection: %v", err)
		}
		if string(buffer[:n]) == text {
			return true
		}
		if !s.datagrams {
			return false
		}
	}
}

// arrives reports whether the client receives a text that the server sent earlier: TCP
// retransmits it.
func (s *session) arrives(text string) bool {
	s.t.Helper()
	if s.datagrams {
		return s.delivers(text)
	}
	return s.receives(text, testTimeout)
}

// delivers reports whether the client receives a text from the server. It is sent once over
// TCP, which retransmits it, and repeatedly over UDP.
func (s *session) delivers(text string) bool {
	s.t.Helper()
	if !s.datagrams {
		s.push(text)
		return s.receives(text, testTimeout)
	}
	for end := time.Now().Add(testTimeout); time.Now().Before(end); {
		if s.push(text); s.receives(text, resendInterval) {
			return true
		}
	}
	return false
}

// syncer returns a Syncer in the namespace of r.
func (r *testNetwork) syncer() *Syncer {
	return New(Config{Device: "hw-vx0", Log: slog.New(slog.DiscardHandler)})
}

// flows lists the conntrack entries of a namespace.
func (s *space) flows() (out []Flow) {
	s.t.Helper()
	s.Inside(func() {
		if err := listFlows(s.t.Context(), func(f *Flow) { out = append(out, *f) }); err != nil {
			s.t.Error(err)
		}
	})
	return out
}

// runDue runs the due work of a Syncer once, at a time.
func (s *space) runDue(k *Syncer, now time.Time) Stats {
	s.t.Helper()
	s.Inside(func() { k.runDue(s.t.Context(), now) })
	return k.Stats()
}
