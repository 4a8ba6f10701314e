package kernel

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
)

// TestNftDirectSender hands over packets of a worker without VXLAN. Replies return to it as for
// packets in VXLAN. The node treats frames of another hardware address, or on another device, like
// frames of any host.
func TestNftDirectSender(t *testing.T) {
	t.Parallel()
	const client, client6, process = "10.7.5.5", "fd00:7:5::5", "192.0.2.2"
	l := nftNewLab(t)
	worker := nftNewNS(t)
	worker.up("lo")
	worker.sysctl("ipv6/conf/default/accept_dad", "0")
	nftJoinNS(worker, "eth0", l.node, "lan0")
	worker.ip("address add "+process+"/24 dev eth0", "address add fe80::2/64 dev eth0 nodad",
		"address add "+client+"/32 dev lo", "address add "+client6+"/128 dev lo nodad",
		"route add 242.0.0.0/8 via 192.0.2.1", "route add fd00:42::/32 via fe80::1 dev eth0")
	l.node.ip("address add 192.0.2.1/24 dev lan0", "address add fe80::1/64 dev lan0 nodad",
		"route add 10.7.5.0/24 via "+nftPod, "route add fd00:7:5::/64 via "+nftPod6)
	l.remote.serve("tcp", nftRemote+":9000", "["+nftRemote6+"]:9000")
	l.remote.serve("udp", nftRemote+":9000")
	l.node.returnTo(0x123, "lan0", "192.0.2.2", "fe80::2")

	mac := desired.ReturnID(worker.link("eth0").Attrs().HardwareAddr.String())
	id := desired.ReturnID(desired.HardwareAddr("node/worker"))
	mark := strconv.FormatUint(uint64(desired.ReturnMark(0x123)), 10)
	own := []string{"remote4 242.2.0.0/16", "remote6 fd00:42:2::/48", "keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/48",
		"shared4 0 | 242.1.0.1", "node_marks4 " + id + " | " + mark, "node_marks6 " + id + " | " + mark}
	for i := 1; i < desired.SharedSlots; i++ {
		own = append(own, "shared4 "+strconv.Itoa(i)+" | 242.1.0.1")
	}
	senders := func(mac, device string) []string {
		return append(slices.Clone(own), "senders4 "+mac+" . "+device+" | "+id, "senders6 "+mac+" . "+device+" | "+id)
	}
	l.elements(senders(mac, "lan0")...)
	l.mustReply(worker, "tcp", client+":0", nftRemote+":9000")
	l.mustReply(worker, "udp", client+":0", nftRemote+":9000")
	l.mustReply(worker, "tcp", "["+client6+"]:0", "["+nftRemote6+"]:9000")
	l.mustReply(worker, "tcp", process+":0", nftRemote+":9000") // a process of the node
	other, err := strconv.ParseUint(mac, 10, 32)
	l.node.must(err, "parse the hardware address")
	for _, elements := range [][]string{own, senders(strconv.FormatUint(other^1, 10), "lan0"), senders(mac, "lan1")} {
		l.elements(elements...)
		l.expectDropped(worker, "tcp", client+":0", nftRemote+":9000") // the reply leaves for the pod network
		l.expectDropped(worker, "tcp", process+":0", nftRemote+":9000")
	}
	l.expectDropCount(desired.DropUnknownSource, 3)
}

// TestNftNextHop checks that packets leave for a gateway without VXLAN only over the next hop in
// the set. Only packets of pods and processes of this node leave.
func TestNftNextHop(t *testing.T) {
	t.Parallel()
	const stranger = "198.51.100.9"
	l := nftNewLab(t)
	gateway := nftNewNS(t)
	gateway.up("lo")
	nftJoinNS(l.node, "lan0", gateway, "eth0")
	l.node.ip("address add 192.0.2.2/24 dev lan0", "route add "+stranger+" via "+nftPod)
	l.pod.ip("address add " + stranger + "/32 dev lo")
	gateway.ip("address add 192.0.2.1/24 dev eth0", "address add 242.2.9.9/32 dev lo", "route add default via 192.0.2.2")
	gateway.serve("tcp", "242.2.9.9:9000")
	l.node.ip("route add 242.2.9.9/32 via 192.0.2.1 dev lan0")
	own := []string{"remote4 242.2.0.0/16", "keep_source4 10.7.0.0/16"}
	l.elements(append(own, "gateway_hops4 192.0.2.1 . lan0")...)
	l.mustReply(l.pod, "tcp", nftPod+":0", "242.2.9.9:9000")
	l.mustReply(l.node, "tcp", "192.0.2.2:0", "242.2.9.9:9000")
	l.expectDropped(l.pod, "tcp", stranger+":0", "242.2.9.9:9000")
	l.expectDropCount(desired.DropUnknownSource, 1)
	for _, hop := range []string{"gateway_hops4 192.0.2.9 . lan0", "gateway_hops4 192.0.2.1 . lan1"} {
		l.elements(append(slices.Clone(own), hop)...)
		l.expectDropped(l.pod, "tcp", nftPod+":0", "242.2.9.9:9000")
		l.expectDropped(l.node, "tcp", "192.0.2.2:0", "242.2.9.9:9000")
	}
	l.expectDropCount(desired.DropLeak, 4)
}

// TestUnderlayAddrs reads the devices of addresses, the networks behind them, and the reason why a
// device is unsuitable.
func TestUnderlayAddrs(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.ip("link add eth0 type veth peer name far0", "tuntap add dev vpn0 mode tun")
	for _, link := range []string{"lo", "eth0", "far0", "vpn0"} {
		ns.up(link)
	}
	ns.address("eth0", "192.0.2.1/24", "fd00:7::1/64")
	ns.ip("address add 198.51.100.1/32 dev vpn0", "route add 203.0.113.0/24 dev eth0", "route add 203.0.114.0/24 via 192.0.2.9",
		"route add 203.0.115.0/24 dev vpn0")
	read := func() []model.UnderlayAddr {
		t.Helper()
		var have []model.UnderlayAddr
		var err error
		ns.inside(func() {
			have, err = UnderlayAddrs([]netip.Addr{
				netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00:7::1"), netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("192.0.2.77"),
			})
		})
		ns.must(err, "read addresses")
		return have
	}
	mac := ns.link("eth0").Attrs().HardwareAddr.String()
	want := []model.UnderlayAddr{
		{Addr: netip.MustParseAddr("192.0.2.1"), Device: "eth0", MAC: mac, Networks: prefixesOf("192.0.2.0/24", "203.0.113.0/24")},
		{Addr: netip.MustParseAddr("fd00:7::1"), Device: "eth0", MAC: mac, Networks: prefixesOf("fd00:7::/64")},
		{Addr: netip.MustParseAddr("198.51.100.1"), Device: "vpn0", Networks: prefixesOf("203.0.115.0/24"), Unsuitable: "vpn0 has no Ethernet address"},
	}
	compare := cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
	if d := cmp.Diff(want, read(), compare); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !strings.HasSuffix(read()[2].Unsuitable, "no Ethernet address") {
		t.Error("a device without Ethernet is suitable")
	}
}
