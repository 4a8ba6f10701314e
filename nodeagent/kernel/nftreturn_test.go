package kernel

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
)

// ip runs ip(8) with each line of arguments.
func (n *nftNS) ip(lines ...string) {
	n.t.Helper()
	for _, line := range lines {
		n.inside(func() {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				n.t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		})
	}
}

// returnTo adds the routing rules and the route over a device to a node by its number, in both
// families.
func (n *nftNS) returnTo(number int, device, via, via6 string) {
	n.t.Helper()
	var lines []string
	for _, six := range []bool{false, true} {
		family, via := "-4", via
		if six {
			family, via = "-6", via6
		}
		for _, link := range []string{"hw-wg1", desired.NodeDevice} {
			lines = append(lines, family+" rule add pref 7289 iif "+link+" fwmark 0x70000000/0xf0000000 goto 33000")
		}
		lines = append(lines, family+" route add default via "+via+" dev "+device+" table 7401")
		for _, r := range append(desired.ReturnRules(number, 7401, six, ""), desired.ReturnRules(0, desired.TableMain, six, "")...) {
			to := "lookup " + strconv.Itoa(r.Table)
			if r.Goto > 0 {
				to = "goto " + strconv.Itoa(r.Goto)
			}
			lines = append(lines, family+" rule add pref "+strconv.Itoa(r.Priority)+
				" fwmark 0x"+strconv.FormatUint(uint64(r.Mark), 16)+"/0x"+strconv.FormatUint(uint64(r.Mask), 16)+" "+to)
		}
	}
	n.ip(lines...)
}

// TestNftReturn checks that replies to a worker's flow return to that worker, although the main
// table routes its pods elsewhere. Replies to a pod of the node return to that pod, although the
// table of pod prefixes routes them to the worker.
func TestNftReturn(t *testing.T) {
	t.Parallel()
	const client, client6 = "10.7.5.5", "fd00:7:5::5"
	l := nftNewLab(t)
	worker := nftNewNS(t)
	worker.up("lo")
	worker.sysctl("ipv6/conf/default/accept_dad", "0")
	nftJoinNS(worker, desired.NodeDevice, l.node, desired.NodeDevice)
	worker.ip("address add 192.0.2.2/24 dev hw-vx0", "address add fe80::2/64 dev hw-vx0 nodad",
		"address add "+client+"/32 dev lo", "address add "+client6+"/128 dev lo nodad", "address add "+nftPod+"/32 dev lo",
		"route add 242.0.0.0/8 via 192.0.2.1", "route add fd00:42::/32 via fe80::1 dev hw-vx0")
	l.node.ip("address add 192.0.2.1/24 dev hw-vx0", "address add fe80::1/64 dev hw-vx0 nodad",
		"route add 10.7.5.0/24 via "+nftPod, "route add fd00:7:5::/64 via "+nftPod6)
	l.remote.serve("tcp", nftRemote+":9000", "["+nftRemote6+"]:9000")
	l.remote.serve("udp", nftRemote+":9000")

	id := desired.ReturnID(worker.link(desired.NodeDevice).Attrs().HardwareAddr.String())
	mark := strconv.FormatUint(uint64(desired.ReturnMark(0x123)), 10)
	own := []string{"remote4 242.2.0.0/16", "remote6 fd00:42:2::/48", "keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/48"}
	home := append(own, "node_marks4 "+id+" | "+mark, "node_marks6 "+id+" | "+mark)
	l.elements(home...)
	l.expectDropped(worker, "tcp", client+":0", nftRemote+":9000") // no routing rules yet

	l.node.returnTo(0x123, desired.NodeDevice, "192.0.2.2", "fe80::2")
	l.node.ip("route add 10.7.1.0/24 via 192.0.2.2 dev hw-vx0 table 7301", "rule add pref 7301 iif hw-wg1 lookup 7301")
	l.elements(home...) // deletes the entry of the dropped flow
	l.mustReply(worker, "tcp", client+":0", nftRemote+":9000")
	l.mustReply(worker, "udp", client+":0", nftRemote+":9000")
	l.mustReply(worker, "tcp", "["+client6+"]:0", "["+nftRemote6+"]:9000")
	l.mustReply(l.pod, "tcp", nftPod+":0", nftRemote+":9000")
	// A pod with the address and port of a former pod on the worker.
	l.mustReply(worker, "udp", nftPod+":5555", nftRemote+":9000")
	l.mustReply(l.pod, "udp", nftPod+":5555", nftRemote+":9000")
	l.mustReply(worker, "udp", nftPod+":5555", nftRemote+":9000")
	// An unknown node: the tables decide.
	l.elements(own...)
	l.expectDropped(worker, "tcp", client+":0", nftRemote+":9000")
}

// TestNftReturnThroughTwo uses a gateway without tunnels that hands a worker's flow over to its
// sibling. The sibling identifies the flow by this gateway's frames, so the replies come to this
// gateway. They must go to the worker, and not by the main table to another node.
func TestNftReturnThroughTwo(t *testing.T) {
	t.Parallel()
	const client, client6, server, server6 = "10.7.5.5", "fd00:7:5::5", "242.2.9.9", "fd00:42:2::99"
	l := nftNewLab(t)
	worker, mate := nftNewNS(t), nftNewNS(t)
	l.node.ip("link add hw-vx0 type bridge", "link set hw-vx0 up")
	for i, ns := range []*nftNS{worker, mate} {
		port := "port" + strconv.Itoa(i)
		ns.up("lo")
		ns.sysctl("ipv6/conf/default/accept_dad", "0")
		nftJoinNS(ns, desired.NodeDevice, l.node, port)
		l.node.ip("link set " + port + " master hw-vx0")
		last := strconv.Itoa(i + 2)
		ns.ip("address add 192.0.2."+last+"/24 dev hw-vx0", "address add fe80::"+last+"/64 dev hw-vx0 nodad",
			"route add default via 192.0.2.1", "-6 route add default via fe80::1 dev hw-vx0")
	}
	worker.ip("address add "+client+"/32 dev lo", "address add "+client6+"/128 dev lo nodad")
	mate.ip("address add "+server+"/32 dev lo", "address add "+server6+"/128 dev lo nodad")
	mate.serve("tcp", server+":9000", "["+server6+"]:9000")
	mate.serve("udp", server+":9000")
	l.node.ip("address add 192.0.2.1/24 dev hw-vx0", "address add fe80::1/64 dev hw-vx0 nodad",
		"route add "+server+" via 192.0.2.3", "-6 route add "+server6+" via fe80::3 dev hw-vx0",
		"route add 10.7.5.0/24 via "+nftPod, "route add fd00:7:5::/64 via "+nftPod6)
	l.node.returnTo(0x123, desired.NodeDevice, "192.0.2.2", "fe80::2")
	id := desired.ReturnID(worker.link(desired.NodeDevice).Attrs().HardwareAddr.String())
	mark := strconv.FormatUint(uint64(desired.ReturnMark(0x123)), 10)
	l.elements("remote4 242.2.0.0/16", "remote6 fd00:42:2::/48", "keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/48",
		"node_marks4 "+id+" | "+mark, "node_marks6 "+id+" | "+mark)
	l.mustReply(worker, "tcp", client+":0", server+":9000")
	l.mustReply(worker, "udp", client+":0", server+":9000")
	l.mustReply(worker, "tcp", "["+client6+"]:0", "["+server6+"]:9000")
}

// TestNftShortcut checks that a backend whose replies would bypass the node sees the node's
// address. Flows that other programs translate do not change.
func TestNftShortcut(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPodB+":8080", "["+nftPodB6+"]:8080")
	l.remote.serve("tcp", nftRemote+":80")
	lines := append(nftSlots(nftVIP+" . tcp . 80", "pick_one4", 1, nftDest(nftPodB, 8080)),
		nftSlots(nftVIP6+" . tcp . 80", "pick_one6", 1, nftDest(nftPodB6, 8080))...)
	l.elements(append(lines, "pools4 243.0.0.0/16", "pools6 fd00:43::/64")...)
	if got := l.mustReply(l.pod, "tcp", nftPod+":0", nftVIP+":80"); got.client != nftPodGW {
		t.Errorf("the backend saw %q, want the node %s", got.client, nftPodGW)
	}
	got := l.mustReply(l.pod, "tcp", "["+nftPod6+"]:0", "["+nftVIP6+"]:80")
	if got.client != nftPodGW6 {
		t.Errorf("the backend saw %q, want the node %s", got.client, nftPodGW6)
	}
	// Flows from other devices keep their source.
	if got := l.mustReply(l.remote, "tcp", nftRemote+":0", nftVIP+":80"); got.client != nftRemote {
		t.Errorf("the backend saw %q, want %s", got.client, nftRemote)
	}
	l.node.nft(`
table ip other {
	chain prerouting { type nat hook prerouting priority -100; ip daddr 10.99.0.1 tcp dport 80 dnat to 10.7.1.3:8080; }
}`)
	l.expectDropped(l.pod, "tcp", nftPod+":0", "10.99.0.1:80")
}
