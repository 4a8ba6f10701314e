package kernel

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
)

func networksOf(texts ...string) []model.Network {
	var out []model.Network
	for _, text := range texts {
		prefix, link, _ := strings.Cut(text, " ")
		out = append(out, model.Network{Prefix: netip.MustParsePrefix(prefix), Link: link})
	}
	return out
}

func (n *nftNS) networks(prefixes ...string) []model.Network {
	n.t.Helper()
	var have []model.Network
	var err error
	n.inside(func() { have, err = Networks(prefixesOf(prefixes...)) })
	n.must(err, "read networks")
	return have
}

var sameNetwork = cmp.Comparer(func(a, b model.Network) bool { return a == b })

// TestNetworks finds networks of cards, bridges and VPNs that contain a prefix, equal it or are
// inside it. Other routes are no networks.
func TestNetworks(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.ip("link add eth1 type veth peer name eth2", "link add docker0 type bridge", "link add wg0 type veth peer name hw-vx0")
	for _, link := range []string{"lo", "eth1", "docker0", "wg0", "hw-vx0", "eth2"} {
		ns.up(link)
	}
	ns.address("eth1", "10.2.1.1/24", "10.3.0.1/16", "fd00:2:1::1/64", "fd00:3::1/32", "192.0.2.1/24", "169.254.2.1/16")
	ns.address("docker0", "10.4.0.1/15") // without a carrier
	ns.ip("address add 10.2.2.1 peer 10.2.2.2/32 dev wg0", "-6 address add fd00:2:2::1 peer fd00:2:2::2/128 dev wg0 nodad",
		"route add 10.2.3.0/24 dev wg0", "-6 route add fd00:2:3::/64 dev wg0",
		"route add 10.2.4.0/24 nexthop dev eth1 nexthop dev eth2",
		"route add 0.0.0.0/1 dev wg0", "route add 128.0.0.0/1 dev wg0", "route add default dev wg0", "route add 8.0.0.0/6 dev wg0",
		"-6 route add ::/1 dev wg0", "-6 route add 8000::/1 dev wg0", "-6 route add default dev wg0", "-6 route add f000::/4 dev wg0",
		"route add 10.2.5.0/24 via 192.0.2.2", "route add blackhole 10.2.6.0/24", "route add 10.2.7.0/24 dev hw-vx0",
		"route add 10.2.8.0/24 dev wg0 table 500", "-6 route add fd00:2:5::/64 via fe80::2 dev eth1",
		"route add 10.2.9.0/24 dev eth2 proto dhcp", "-6 route add fd00:2:9::/64 dev eth2 proto ra")
	have := ns.networks("10.2.0.0/16", "10.3.0.0/16", "10.5.1.0/24", "169.254.0.0/16", "fd00:2::/32", "fd00:3:1::/48", "fe80::/10", "ff00::/8")
	want := networksOf("10.2.1.0/24 eth1", "10.2.2.2/32 wg0", "10.2.3.0/24 wg0", "10.2.4.0/24 eth1", "10.2.4.0/24 eth2", "10.3.0.0/16 eth1",
		"10.4.0.0/15 docker0", "fd00:2:1::/64 eth1", "fd00:2:2::1/128 wg0", "fd00:2:2::2/128 wg0", "fd00:2:3::/64 wg0", "fd00:3::/32 eth1")
	if diff := cmp.Diff(want, have, sameNetwork); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// A card that DHCP configured.
	ns.address("eth2", "10.2.9.7/32")
	if diff := cmp.Diff(networksOf("10.2.9.0/24 eth2"), ns.networks("10.2.9.0/24"), sameNetwork); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if have := ns.networks("10.6.0.0/16"); have != nil {
		t.Errorf("no network overlaps: %v", have)
	}
}

// TestNetworksOfAdvertisements checks that an advertised on-link prefix is no network of the node.
// A host in the node's network advertises the addresses of another cluster, and the node configures
// itself. Otherwise that host would get the packets for the cluster in the clear.
func TestNetworksOfAdvertisements(t *testing.T) {
	t.Parallel()
	node, attacker := nftNewNS(t), nftNewNS(t)
	for _, ns := range []*nftNS{node, attacker} {
		ns.up("lo")
		ns.sysctl("ipv6/conf/default/accept_dad", "0")
		ns.sysctl("ipv6/conf/default/accept_ra", "2")
		ns.sysctl("ipv6/conf/all/forwarding", "1") // like a node
	}
	nftJoinNS(node, "eth0", attacker, "eth0")
	var conn net.PacketConn
	var err error
	attacker.inside(func() { conn, err = net.ListenPacket("ip6:ipv6-icmp", "::") })
	attacker.must(err, "open a socket for ICMPv6")
	defer conn.Close()
	raw, err := conn.(*net.IPConn).SyscallConn()
	attacker.must(err, "socket")
	var set error
	attacker.must(raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255)
	}), "socket")
	attacker.must(set, "hop limit")
	advertise := func(prefix string, flags byte) error {
		message := []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // RFC 4861, 4.2
		option := append([]byte{3, 4, 64, flags}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
		option = append(option, netip.MustParseAddr(prefix).AsSlice()...) // RFC 4861, 4.6.2: infinite lifetime
		zone := strconv.Itoa(attacker.link("eth0").Attrs().Index)
		_, err := conn.WriteTo(append(message, option...), &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: zone})
		return err
	}
	listed := func(prefix string) bool {
		routes, err := node.netlink.RouteList(nil, unix.AF_INET6)
		node.must(err, "list routes")
		for _, r := range routes {
			if r.Dst != nil && r.Dst.String() == prefix {
				return true
			}
		}
		return false
	}
	for prefix, flags := range map[string]byte{"fd00:2:1::": 0x80, "fd00:2:2::": 0xc0} { // on link, and with addresses
		await(t, "the route of "+prefix, func() bool { return advertise(prefix, flags) == nil && listed(prefix+"/64") })
	}
	await(t, "an address", func() bool {
		addrs, err := node.netlink.AddrList(node.link("eth0"), unix.AF_INET6)
		node.must(err, "list addresses")
		for _, a := range addrs {
			if strings.HasPrefix(a.IP.String(), "fd00:2:2:") {
				return true
			}
		}
		return false
	})
	if have := node.networks("fd00:2::/32"); have != nil {
		t.Errorf("advertised networks count: %v", have)
	}
	node.address("eth0", "fd00:2:1::7/64")
	if diff := cmp.Diff(networksOf("fd00:2:1::/64 eth0"), node.networks("fd00:2::/32"), sameNetwork); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNftConnected uses a node with a second card in a network with addresses of another cluster.
// It reaches the hosts there, except with packets for the cluster. Packets of other senders never
// leave by that card.
func TestNftConnected(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	lan, worker := nftNewNS(t), nftNewNS(t)
	for _, ns := range []*nftNS{lan, worker} {
		ns.up("lo")
		ns.sysctl("ipv6/conf/default/accept_dad", "0")
	}
	nftJoinNS(l.node, "eth1", lan, "eth0")
	nftJoinNS(l.node, "hw-vx0", worker, "hw-vx0")
	l.node.address("eth1", "242.2.5.1/24", "fd00:42:2:5::1/64")
	lan.address("eth0", "242.2.5.9/24", "fd00:42:2:5::9/64")
	lan.route("10.7.0.0/16", "242.2.5.1")
	lan.route("fd00:7::/32", "fd00:42:2:5::1")
	l.node.address("hw-vx0", "10.7.9.1/24")
	worker.address("hw-vx0", "10.7.9.2/24")
	worker.route("242.2.0.0/16", "10.7.9.1")
	l.remote.address("lo", "242.2.5.77/32", "fd00:42:2:5::77/128")
	// A CNI that translates pods to the node's address.
	l.node.nft(`table inet cni { chain post { type nat hook postrouting priority 100; oifname { "eth1", "hw-wg1" } masquerade; }; }`)
	elements := func(link string) []string {
		return []string{
			"remote4 242.2.0.0/16", "remote6 fd00:42:2::/48", "networks4 242.2.5.0/24", "networks6 fd00:42:2:5::/64",
			"connected4 242.2.5.0/24 . " + link, "connected6 fd00:42:2:5::/64 . " + link,
		}
	}
	services := append(append(append(nftSlots(nftVIP+" . udp . 80", "pick_one4", 1, nftDest("242.2.5.9", 9000)),
		nftSlots(nftVIP6+" . udp . 80", "pick_one6", 1, nftDest("fd00:42:2:5::9", 9000))...),
		nftSlots("242.1.0.5 . udp . 80", "pick_one4", 1, nftDest(nftPod, 8080))...),
		nftSlots("fd00:42:1::5 . udp . 80", "pick_one6", 1, nftDest(nftPod6, 8080))...)
	services = append(services, "pools4 243.0.0.0/16", "pools6 fd00:43::/64")
	set := func(link string) { l.t.Helper(); l.elements(append(elements(link), services...)...) }
	set("eth1")
	for _, c := range []struct{ lan, card, remote, pod, vip, export, inside, outside string }{
		{"242.2.5.9", "242.2.5.1", nftRemote, nftPod, nftVIP, "242.1.0.5", "242.2.5.77", nftRemote},
		{"fd00:42:2:5::9", "fd00:42:2:5::1", nftRemote6, nftPod6, nftVIP6, "fd00:42:1::5", "fd00:42:2:5::77", nftRemote6},
	} {
		at := func(a, port string) string { return net.JoinHostPort(a, port) }
		lan.serve("udp", at(c.lan, "9000"))
		lan.serve("tcp", at(c.lan, "9000"))
		l.remote.serve("udp", at(c.remote, "9000"), at(c.inside, "9000"))
		l.pod.serve("udp", at(c.pod, "8080"))
		for _, network := range []string{"udp", "tcp"} {
			for _, from := range []*nftNS{l.pod, l.node} {
				if got := l.mustReply(from, network, "", at(c.lan, "9000")); got.client != c.card {
					t.Errorf("the host sees %q, want the node's own address %s: the CNI translates", got.client, c.card)
				}
			}
		}
		l.mustReply(l.pod, "udp", "", at(c.remote, "9000")) // other addresses are behind the tunnel
		// From that network to a pod, as to a node port: the reply returns there.
		l.mustReply(lan, "udp", at(c.lan, "0"), at(c.pod, "8080"))
		// Packets for another cluster do not use that network.
		l.expectDropped(l.pod, "udp", "", at(c.vip, "80"))
		if got, err := l.node.call("udp", "", at(c.vip, "80"), nftDropTimeout); err == nil {
			t.Errorf("a process of the node reached %+v", got)
		}
		// A client of that network has an address to which the reply would not return.
		l.mustReply(l.remote, "udp", at(c.outside, "0"), at(c.export, "80"))
		l.expectDropped(l.remote, "udp", at(c.inside, "0"), at(c.export, "80"))
	}
	// Another node hands over packets for the other cluster.
	l.expectDropped(worker, "udp", "10.7.9.2:0", "242.2.5.9:9000")
	ns, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var counts map[string]uint64
	l.node.inside(func() { counts, err = ns.Dropped(t.Context()) })
	l.node.must(err, "read counters")
	for reason, least := range map[string]uint64{desired.DropConnected: 2, desired.DropLeak: 5} {
		if n := counts[desired.DropPrefix+reason]; n < least {
			t.Errorf("%s: %d packets, want at least %d", reason, n, least)
		}
	}
	// By another device, packets to the same addresses are a leak.
	set("eth9")
	for _, to := range []string{"242.2.5.9:9000", "[fd00:42:2:5::9]:9000"} {
		for _, from := range []*nftNS{l.pod, l.node} {
			if got, err := from.call("udp", "", to, nftDropTimeout); err == nil {
				t.Errorf("%s left by a link other than the network's: %+v", to, got)
			}
		}
	}
}
