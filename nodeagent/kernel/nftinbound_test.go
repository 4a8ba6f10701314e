package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// TestNftPrefixBothWays checks that a pod with a global address in a mapped block uses it as
// source. Replies reach the pod at that address, other packets do not.
func TestNftPrefixBothWays(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.remote.serve("udp", nftRemote+":9000", nftOther+":9000")
	l.remote.serve("tcp", nftRemote+":9000")
	l.pod.serve("udp", nftPod+":9000", nftPod+":9001")
	l.pod.serve("tcp", nftPod+":9000")
	block := []string{"mapped4 10.7.0.0/16 | 242.4.0.0/16", "unmapped4 242.4.0.0/16 | 10.7.0.0/16", "podblocks4 242.4.0.0/16"}
	l.elements(append(block, "remote_exports4 "+nftRemote+" . udp . 7000", "served4 "+nftPod+" . udp . 9001")...)
	for _, network := range []string{"udp", "tcp"} {
		if got := l.mustReply(l.pod, network, nftPod+":0", nftRemote+":9000"); got.client != "242.4.1.2" {
			t.Errorf("%s: seen as %q, want 242.4.1.2", network, got.client)
		}
	}
	// A datagram from the address and port of an export may be a reply. It is not a reply
	// if the pod serves an export on that port. A TCP connection from there is never a reply.
	if got := l.mustReply(l.remote, "udp", nftRemote+":7000", "242.4.1.2:9000"); got.server != nftPod+":9000" {
		t.Errorf("reached %q, want the pod", got.server)
	}
	l.expectDropped(l.remote, "udp", nftRemote+":7000", "242.4.1.2:9001")
	l.expectDropped(l.remote, "udp", nftRemote+":7001", "242.4.1.2:9000")
	l.expectDropped(l.remote, "udp", nftOther+":7000", "242.4.1.2:9000")
	l.expectDropped(l.remote, "tcp", nftRemote+":7000", "242.4.1.2:9000")
	// Without the block in podblocks its pods are open.
	l.elements(block[0], block[1])
	if got := l.mustReply(l.remote, "tcp", nftOther+":0", "242.4.1.2:9000"); got.server != nftPod+":9000" || got.client != nftOther {
		t.Errorf("received %v, want the pod to see %s", got, nftOther)
	}
}

func TestNftOwners(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":9000", "["+nftPod6+"]:9000")
	l.elements("owners4 242.1.0.9 | "+nftPod, "owners6 fd00:42:1::9 | "+nftPod6)
	l.mustReply(l.remote, "tcp", nftRemote+":0", "242.1.0.9:9000")
	l.mustReply(l.remote, "tcp", "", "[fd00:42:1::9]:9000")
}

func TestNftAllowLists(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":8080")
	l.pod.serve("udp", nftPod+":8080")
	const export = "242.1.0.5"
	service := append(nftSlots(export+" . tcp . 80", "pick_one4", 1, nftDest(nftPod, 8080)),
		nftSlots(export+" . udp . 80", "pick_one4", 1, nftDest(nftPod, 8080))...)
	tests := []struct {
		name            string
		lines           []string
		remote, another bool
	}{
		{"open", nil, true, true},
		{"for none", []string{"restricted4 " + export}, false, false},
		{"for one cluster", []string{"restricted4 " + export, "allowed4 242.2.0.0/16 . " + export}, true, false},
		{"for both", []string{"restricted4 " + export, "allowed4 242.2.0.0/16 . " + export, "allowed4 242.3.0.0/24 . " + export}, true, true},
		{"another export's list", []string{"restricted4 " + export, "allowed4 242.2.0.0/16 . 242.1.0.6"}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l.elements(append(tt.lines, service...)...)
			for _, network := range []string{"tcp", "udp"} {
				for source, open := range map[string]bool{nftRemote: tt.remote, nftOther: tt.another} {
					if open {
						l.mustReply(l.remote, network, source+":0", export+":80")
					} else {
						l.expectDropped(l.remote, network, source+":0", export+":80")
					}
				}
			}
		})
	}
}

// TestNftAllowListsEnd checks that a client that is removed from an allow list receives no more
// packets of its connections. Otherwise a server that only sends would never stop. The backend is
// in a pod, or on the gateway itself.
func TestNftAllowListsEnd(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	for _, backend := range []struct {
		on                    *nftNS
		at, export, client, f string
	}{
		{l.pod, nftPod, "242.1.0.5", nftRemote, "4"},
		{l.pod, nftPod6, "fd00:42:1::5", nftRemote6, "6"},
		{l.node, nftPodGW, "242.1.0.5", nftRemote, "4"},
		{l.node, nftPodGW6, "fd00:42:1::5", nftRemote6, "6"},
	} {
		service := append(nftSlots(backend.export+" . udp . 80", "pick_one"+backend.f, 1, nftDest(backend.at, 8080)),
			"restricted"+backend.f+" "+backend.export)
		allowed := append(slices.Clone(service), "allowed"+backend.f+" "+backend.client+" . "+backend.export)
		l.elements(allowed...)
		var server net.PacketConn
		var err error
		backend.on.inside(func() { server, err = net.ListenPacket("udp", net.JoinHostPort(backend.at, "8080")) })
		l.node.must(err, "listen on the backend")
		defer server.Close()
		client := l.remote.dial(backend.client, backend.export, "80")
		deadline := time.Now().Add(nftTimeout)
		l.node.must(errors.Join(server.SetDeadline(deadline), client.SetDeadline(deadline)), "set a deadline")
		packet := make([]byte, 100)
		_, err = client.Write([]byte("hello"))
		l.remote.must(err, "ask")
		_, from, err := server.ReadFrom(packet)
		l.node.must(err, "receive from the client at "+backend.at)
		// Packets sent while the list lacks the client must not arrive before those sent
		// after it is listed again.
		for _, step := range []struct {
			text  string
			lines []string
		}{{"before", allowed}, {"excluded", service}, {"after", allowed}} {
			l.change(step.lines...)
			if _, err = server.WriteTo([]byte(step.text), from); err != nil && step.text != "excluded" {
				l.t.Fatalf("%s: send from %s: %v", step.text, backend.at, err)
			}
		}
		for _, want := range []string{"before", "after"} {
			n, err := client.Read(packet)
			if err != nil || string(packet[:n]) != want {
				t.Errorf("backend %s: heard %q, %v, want %q", backend.at, packet[:n], err, want)
			}
		}
	}
}

// TestNftInbound checks that only declared destinations are reachable: the cluster's own prefixes
// if it is flat, but not the node, and not other routed addresses.
func TestNftInbound(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":9000")
	l.node.serve("tcp", nftTunAddr+":4805", nftTunAddr+":22")
	l.node.serve("udp", nftTunAddr+":4804", nftTunAddr+":53")
	l.elements("tunnels4 " + nftTunAddr)
	l.expectDropped(l.remote, "tcp", nftRemote+":0", nftPod+":9000")
	l.expectDropped(l.remote, "tcp", nftPeer+":0", nftTunAddr+":22")
	l.expectDropped(l.remote, "udp", nftPeer+":0", nftTunAddr+":53")
	l.mustReply(l.remote, "udp", nftPeer+":0", nftTunAddr+":4804")
	l.mustReply(l.remote, "tcp", nftPeer+":0", nftTunAddr+":4805")
	l.ping(l.remote, nftTunAddr, true)
	l.ping(l.remote, nftPodGW, false)
	l.elements("direct4 10.7.0.0/16")
	l.mustReply(l.remote, "tcp", nftRemote+":0", nftPod+":9000")
	l.expectDropped(l.remote, "udp", nftPeer+":0", nftTunAddr+":4804")
}

// TestNftForeignTranslation checks that addresses that other programs translate, such as a
// ClusterIP or a node port, are no exports.
func TestNftForeignTranslation(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":8080")
	l.node.nft(`table ip proxy {
		chain prerouting {
			type nat hook prerouting priority -100
			ip daddr { 10.77.0.10, 242.1.0.5, ` + nftTunAddr + ` } tcp dport 80 dnat to ` + nftPod + `:8080
		}
	}`)
	l.elements("tunnels4 " + nftTunAddr)
	l.expectDropped(l.remote, "tcp", nftRemote+":0", "10.77.0.10:80")
	l.expectDropped(l.remote, "tcp", nftRemote+":0", nftTunAddr+":80")
	l.mustReply(l.remote, "tcp", nftRemote+":0", "242.1.0.5:80")
}

func TestNftEcho(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.ping(l.pod, nftVIP, false)
	l.elements("icmp_echo4 "+nftVIP+" | "+nftRemote, "keep_source4 10.7.0.0/16")
	l.ping(l.pod, nftVIP, true)
	l.ping(l.node, nftVIP, true)
	l.elements("icmp_echo4 242.1.0.5 | "+nftPod, "keep_source4 10.7.0.0/16")
	l.ping(l.remote, "242.1.0.5", true)
}

// ping checks whether the pinged address replies to an echo request.
func (l *nftLab) ping(from *nftNS, to string, want bool) {
	l.t.Helper()
	var conn net.PacketConn
	var err error
	from.inside(func() { conn, err = net.ListenPacket("ip4:icmp", "0.0.0.0") })
	from.must(err, "open an ICMP socket")
	defer conn.Close()
	request := []byte{8, 0, 0, 0, 0x68, 0x61, 0, 1, 'h', 'i', '!', '!'}
	binary.BigEndian.PutUint16(request[2:], nftChecksum(request))
	_, err = conn.WriteTo(request, &net.IPAddr{IP: net.ParseIP(to)})
	from.must(err, "send an echo request")
	patience := nftDropTimeout
	if want {
		patience = nftTimeout
	}
	from.must(conn.SetReadDeadline(time.Now().Add(patience)), "set deadline")
	buf := make([]byte, 1500)
	for {
		n, source, err := conn.ReadFrom(buf)
		if err != nil {
			if want {
				l.t.Errorf("no answer from %s: %v", to, err)
			}
			return
		}
		if n >= 6 && buf[0] == 0 && source.String() == to && string(buf[4:6]) == "ha" {
			if !want {
				l.t.Errorf("an answer from %s", to)
			}
			return
		}
	}
}

// TestNftTransitIsDropped checks that other clusters cannot use this cluster for transit: no packet
// from a tunnel enters a tunnel.
func TestNftTransitIsDropped(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	third := nftNewNS(t)
	third.up("lo")
	nftJoinNS(l.node, "hw-wg2", third, "hw-wg2")
	l.node.address("hw-wg2", "241.0.1.1/24")
	third.address("hw-wg2", "241.0.1.2/24")
	third.address("lo", "10.11.0.9/32")
	l.node.route("10.11.0.0/16", "241.0.1.2")
	third.route("0.0.0.0/0", "241.0.1.1")
	third.serve("udp", "10.11.0.9:9000")
	l.elements("direct4 10.11.0.0/16", "keep_source4 10.0.0.0/8")
	l.expectDropped(l.remote, "udp", nftFlat+":0", "10.11.0.9:9000")
	if got := l.mustReply(l.pod, "udp", nftPod+":0", "10.11.0.9:9000"); got.client != nftPod {
		t.Errorf("the pod was seen as %q", got.client)
	}
	nftApplyTable(t, l.node) // without the table the packet passes
	l.mustReply(l.remote, "udp", nftFlat+":0", "10.11.0.9:9000")
}

// TestNftVXLANGuard checks that only nodes of the cluster can send VXLAN, which has no
// authentication.
func TestNftVXLANGuard(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	for _, address := range []string{nftPodGW + ":4803", "[" + nftPodGW6 + "]:4803", nftPodGW + ":4802"} {
		l.node.serve("udp", address)
	}
	l.elements("nodes4 "+nftPodB, "nodes6 "+nftPodB6, "nodes4 "+nftPodGW, "nodes6 "+nftPodGW6)
	for _, pair := range [][2]string{{nftPod, nftPodB}, {"[" + nftPod6 + "]", "[" + nftPodB6 + "]"}} {
		gateway := nftPodGW
		if strings.Contains(pair[0], "[") {
			gateway = "[" + nftPodGW6 + "]"
		}
		l.expectDropped(l.pod, "udp", pair[0]+":0", gateway+":4803")
		l.mustReply(l.pod, "udp", pair[1]+":0", gateway+":4803")
	}
	l.mustReply(l.pod, "udp", nftPod+":0", nftPodGW+":4802")
}

// TestNftVXLANUntracked checks that VXLAN between nodes is not tracked. Packets of other hosts to
// that port are, because they may be translated.
func TestNftVXLANUntracked(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("nodes4 "+nftPodB, "nodes4 "+nftPodGW, "nodes6 "+nftPodB6, "nodes6 "+nftPodGW6)
	tests := []struct {
		name, from, to string
		port           int
		tracked        bool
	}{
		{"between nodes", nftPodB, nftPodGW, 4803, false},
		{"between nodes, IPv6", nftPodB6, nftPodGW6, 4803, false},
		{"another port", nftPodB, nftPodGW, 4802, true},
		{"from a node to others", nftPodB, nftOther, 4803, true},
		{"through the node", nftPodC, nftOther, 4803, true},
	}
	l.remote.serve("udp", nftOther+":4803")
	l.node.serve("udp", nftPodGW+":4803", nftPodGW+":4802", "["+nftPodGW6+"]:4803")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := net.JoinHostPort(tt.to, fmt.Sprint(tt.port))
			l.mustReply(l.pod, "udp", net.JoinHostPort(tt.from, "0"), at)
			tracked := false
			for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
				flows, err := l.node.netlink.ConntrackTableList(netlink.ConntrackTable, family)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range flows {
					tracked = tracked || f.Forward.SrcIP.String() == tt.from && f.Forward.DstIP.String() == tt.to && int(f.Forward.DstPort) == tt.port
				}
			}
			if tracked != tt.tracked {
				t.Errorf("tracked: %v, want %v", tracked, tt.tracked)
			}
		})
	}
}

// TestNftVXLANOfOthers checks that packets that NAT translated to the nodes' VXLAN port are
// dropped, because they were sent to another address. Packets of other hosts to nodes and gateways that
// accept VXLAN are never forwarded.
func TestNftVXLANOfOthers(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.node.serve("udp", nftPodGW+":4803", nftPodGW+":4802")
	l.remote.serve("udp", nftOther+":4803", nftOther+":4804", "["+nftRemote6+"]:51884")
	l.node.nft(`table ip proxy {
		chain prerouting {
			type nat hook prerouting priority -100
			udp dport 5803 dnat to ` + nftPodGW + `:4803
			udp dport 5802 dnat to ` + nftPodGW + `:4802
		}
	}`)
	l.elements("nodes4 "+nftPodB, "nodes4 "+nftPodGW, "vxlan4 "+nftOther+" . 4803", "vxlan6 "+nftRemote6+" . 51884")
	l.mustReply(l.pod, "udp", nftPodB+":0", nftPodGW+":4803")
	l.mustReply(l.pod, "udp", nftPodB+":0", nftPodGW+":5802")
	l.expectDropped(l.pod, "udp", nftPodB+":0", nftPodGW+":5803")
	l.expectDropCount("vxlan", 1)
	out := l.node.link("hw-wg1")
	l.node.must(l.node.netlink.LinkSetDown(out), "set down hw-wg1")
	l.node.must(l.node.netlink.LinkSetName(out, "eth1"), "rename hw-wg1")
	l.node.must(l.node.netlink.LinkSetUp(out), "set up eth1")
	l.node.address("eth1", nftTunAddr6+"/64")
	l.node.neighbour("eth1", nftPeer6, l.remote.link("hw-wg1"))
	l.node.route("242.0.0.0/8", nftPeer)
	l.node.route("fd00:42::/32", nftPeer6)
	l.mustReply(l.pod, "udp", nftPod+":0", nftOther+":4804")
	l.expectDropped(l.pod, "udp", nftPod+":0", nftOther+":4803")
	l.expectDropped(l.pod, "udp", "["+nftPod6+"]:0", "["+nftRemote6+"]:51884")
	l.expectDropCount("vxlan", 3)
}

// TestNftUnknownHosts checks that a host that is neither pod nor node reaches no clusterset IP, no
// export and no other cluster. Pods do not reach gateways inside the tunnels.
func TestNftUnknownHosts(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	beside := nftNewNS(t)
	beside.up("lo")
	nftJoinNS(l.node, "eth1", beside, "eth0")
	l.node.address("eth1", "192.168.9.1/24", "fd00:99::1/64")
	beside.address("eth0", "192.168.9.2/24", "fd00:99::2/64")
	beside.route("0.0.0.0/0", "192.168.9.1")
	beside.route("::/0", "fd00:99::1")
	l.pod.serve("tcp", nftPod+":8080", "["+nftPod6+"]:8080")
	l.remote.serve("tcp", nftRemote+":9000", "["+nftRemote6+"]:9000")
	l.remote.serve("udp", nftPeer+":4804", "["+nftPeer6+"]:4804", nftRemote+":9000")
	lines := append(nftSlots(nftVIP+" . tcp . 80", "pick_one4", 1, nftDest(nftPod, 8080)),
		nftSlots(nftVIP6+" . tcp . 80", "pick_one6", 1, nftDest(nftPod6, 8080))...)
	dest := nftDest(nftPod, 8080)
	lines = append(lines, nftSlots("242.1.0.5 . tcp . 80", "pick_one4", 1, dest)...)
	lines = append(lines, nftSharedLines("242.1.0.1")...)
	lines = append(lines, "tunnels4 "+nftTunAddr, "tunnels6 "+nftTunAddr6)
	l.elements(lines...)
	l.mustReply(l.pod, "tcp", nftPodB+":0", nftVIP+":80")
	l.mustReply(l.pod, "tcp", "["+nftPodB6+"]:0", "["+nftVIP6+"]:80")
	l.mustReply(l.pod, "tcp", nftPod+":0", nftRemote+":9000")
	l.mustReply(l.remote, "tcp", nftRemote+":0", "242.1.0.5:80")
	for _, to := range []string{nftVIP + ":80", "242.1.0.5:80", nftRemote + ":9000", "[" + nftVIP6 + "]:80", "[" + nftRemote6 + "]:9000"} {
		l.expectDropped(beside, "tcp", "", to)
	}
	l.expectDropped(beside, "udp", "192.168.9.2:0", nftRemote+":9000")
	l.expectDropCount("unknown_source", 4)
	l.node.serve("udp", nftTunAddr+":4804", "["+nftTunAddr6+"]:4804")
	for _, a := range [][3]string{{nftPod, nftTunAddr, nftPeer}, {"[" + nftPod6 + "]", "[" + nftTunAddr6 + "]", "[" + nftPeer6 + "]"}} {
		pod, own, peer := a[0], a[1], a[2]
		l.expectDropped(l.pod, "udp", pod+":0", peer+":4804")
		l.mustReply(l.node, "udp", own+":0", peer+":4804")
		l.expectDropped(l.pod, "udp", pod+":0", own+":4804")
	}
	l.expectDropCount("tunnel", 4)
}

// TestNftResolver checks that the DNS server replies to pods, nodes and the host itself. It does
// not reply to other hosts of the node's network and to other clusters.
func TestNftResolver(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	beside := nftNewNS(t)
	beside.up("lo")
	nftJoinNS(l.node, "eth1", beside, "eth0")
	l.node.address("eth1", "192.168.9.1/24", "fd00:99::1/64")
	beside.address("eth0", "192.168.9.2/24", "192.168.9.3/24", "fd00:99::2/64", "fd00:99::3/64")
	beside.route("0.0.0.0/0", "192.168.9.1")
	beside.route("::/0", "fd00:99::1")
	node := nftNewNS(t)
	node.up("lo")
	nftJoinNS(l.node, "hw-vx0", node, "hw-vx0")
	l.node.address("hw-vx0", "192.168.8.1/24")
	node.address("hw-vx0", "192.168.8.2/24")
	node.route("0.0.0.0/0", "192.168.8.1")
	const dns, dns6 = "169.254.73.53", "fd68::53"
	l.node.address("lo", dns+"/32", dns6+"/128")
	for _, network := range []string{"tcp", "udp"} {
		l.node.serve(network, dns+":53", "["+dns6+"]:53", dns+":54", "192.168.9.1:53")
	}
	l.elements("dns4 "+dns, "dns6 "+dns6, "nodes4 192.168.9.3", "nodes6 fd00:99::3", "tunnels4 "+nftTunAddr, "direct4 0.0.0.0/0")
	for _, network := range []string{"tcp", "udp"} {
		l.mustReply(l.pod, network, nftPod+":0", dns+":53")
		l.mustReply(l.pod, network, "["+nftPod6+"]:0", "["+dns6+"]:53")
		l.mustReply(l.node, network, "", dns+":53")
		l.mustReply(l.node, network, "", "["+dns6+"]:53")
		l.mustReply(l.node, network, dns+":0", dns+":53")
		l.mustReply(beside, network, "192.168.9.3:0", dns+":53")
		l.mustReply(beside, network, "[fd00:99::3]:0", "["+dns6+"]:53")
		l.mustReply(node, network, "", dns+":53")
		l.expectDropped(beside, network, "192.168.9.2:0", dns+":53")
		l.expectDropped(beside, network, "[fd00:99::2]:0", "["+dns6+"]:53")
		l.expectDropped(l.remote, network, nftRemote+":0", dns+":53")
		l.expectDropped(beside, network, "192.168.9.2:0", dns+":54")
		// Packets to other addresses of the node pass.
		l.mustReply(beside, network, "192.168.9.2:0", "192.168.9.1:53")
	}
	l.ping(l.pod, dns, true)
	l.ping(beside, dns, false)
	l.expectDropCount("resolver", 6)
}

// expectDropCount checks that at least some packets were dropped for a reason.
func (l *nftLab) expectDropCount(reason string, minimum uint64) {
	l.t.Helper()
	counts := map[string]uint64{}
	l.node.inside(func() {
		conn, err := nftables.Dial(0)
		if err != nil {
			l.t.Fatal(err)
		}
		defer conn.Close()
		if err := nftCountDrops(conn, counts); err != nil {
			l.t.Fatal(err)
		}
	})
	if n := counts[desired.DropPrefix+reason]; n < minimum {
		l.t.Errorf("%d packets dropped as %s, want %d or more; all: %v", n, reason, minimum, counts)
	}
}
