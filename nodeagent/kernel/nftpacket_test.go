package kernel

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftSlots fills all slots of a service, backend after backend.
func nftSlots(service, chain string, slots int, backends ...string) []string {
	family := chain[len(chain)-1:]
	lines := []string{"services" + family + " " + service + " | " + chain}
	for slot := range slots {
		lines = append(lines, fmt.Sprintf("slots%s %s . %d | %s", family, service, slot, backends[slot%len(backends)]))
	}
	return lines
}

// nftDest joins an address and a port in the notation of elements.
func nftDest(address string, port int) string { return fmt.Sprintf("%s . %d", address, port) }

func TestNftServices(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	backends := map[int][]string{4: {nftPod, nftPodB, nftPodC}, 6: {nftPod6, nftPodB6, nftPodC6}}
	vip := map[int]string{4: nftVIP, 6: nftVIP6}
	// The callers are in the remote cluster; the node exports the service.
	var lines []string
	for _, family := range []int{4, 6} {
		var at []string
		for _, b := range backends[family] {
			at = append(at, nftDest(b, 8080))
			l.pod.serve("tcp", net.JoinHostPort(b, "8080"))
			l.pod.serve("udp", net.JoinHostPort(b, "8080"))
		}
		for port, chain := range map[int]string{80: "pick_many", 81: "pick_many_client", 82: "pick_one"} {
			slots := map[string]int{"many": desired.SlotsMany, "one": desired.SlotsOne}[strings.Split(chain, "_")[1]]
			for _, proto := range []string{"tcp", "udp"} {
				service := fmt.Sprintf("%s . %s . %d", vip[family], proto, port)
				lines = append(lines, nftSlots(service, fmt.Sprintf("%s%d", chain, family), slots, at...)...)
			}
		}
	}
	l.elements(lines...)
	tests := []struct {
		name     string
		port     string
		backends int // number of backends that calls from different ports reach
	}{
		{"many slots", "80", 3}, {"many slots by client", "81", 1}, {"one slot", "82", 1},
	}
	for _, tt := range tests {
		for _, family := range []int{4, 6} {
			for _, proto := range []string{"tcp", "udp"} {
				t.Run(fmt.Sprintf("%s %s %d", tt.name, proto, family), func(t *testing.T) {
					reached := map[string]int{}
					for range 40 {
						to := net.JoinHostPort(vip[family], tt.port)
						got := l.mustReply(l.remote, proto, "", to)
						reached[got.server]++
					}
					if len(reached) != tt.backends {
						t.Errorf("reached %v, want %d backends", reached, tt.backends)
					}
				})
			}
		}
	}
}

// TestNftSameCallerSameBackend checks that the backend is a function of the caller. So a gateway
// that does not know the connection chooses the same backend.
func TestNftSameCallerSameBackend(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	backends := []string{nftDest(nftPod, 8080), nftDest(nftPodB, 8080), nftDest(nftPodC, 8080)}
	lines := nftSlots(nftVIP+" . udp . 80", "pick_many4", desired.SlotsMany, backends...)
	for _, b := range []string{nftPod, nftPodB, nftPodC} {
		l.pod.serve("udp", b+":8080")
	}
	first := map[string]string{}
	for round := range 3 {
		l.elements(lines...) // deletes all conntrack entries
		for port := 40000; port < 40020; port++ {
			source := fmt.Sprintf("%s:%d", nftRemote, port)
			server := l.mustReply(l.remote, "udp", source, nftVIP+":80").server
			if round > 0 && server != first[source] {
				t.Errorf("%s reached %s, and %s before", source, server, first[source])
			}
			first[source] = server
		}
	}
	// Only slots with a new backend move their callers.
	moved := 0
	for i, line := range lines {
		if i > 0 && i%16 == 0 {
			lines[i], _, _ = strings.Cut(line, "|")
			lines[i] += "| " + backends[0]
			moved++
		}
	}
	l.elements(lines...)
	changed := 0
	for source, before := range first {
		if l.mustReply(l.remote, "udp", source, nftVIP+":80").server != before {
			changed++
		}
	}
	if changed > 4*len(first)*moved/desired.SlotsMany {
		t.Errorf("%d of %d callers moved for %d of %d slots", changed, len(first), moved, desired.SlotsMany)
	}
}

// TestNftChangesLoseNothing checks that every new connection reaches a service while backends,
// verdicts and even all rules are replaced. None reaches the rule that refuses pool addresses.
func TestNftChangesLoseNothing(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":8080", nftPodB+":8080")
	service := func(chain, backend string) []desired.Element {
		lines := nftSlots(nftVIP+" . tcp . 80", chain, desired.SlotsMany, nftDest(backend, 8080))
		return nftParse(append(lines, "pools4 243.0.0.0/16")...)
	}
	nftMustConverge(t, l.node, service("pick_many4", nftPod))
	stop, calls := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { calls <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := l.node.call("tcp", "", nftVIP+":80", nftTimeout); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
	}()
	const changes = 60
	for i := range changes {
		chain, backend := "pick_many4", nftPod
		if i%2 == 0 {
			chain, backend = "pick_many_client4", nftPodB
		}
		nftMustConverge(t, l.node, service(chain, backend))
		table := nftSampleTable()
		table.MSS4 -= i % 2
		nftApplyTable(t, l.node, table)
	}
	close(stop)
	if n := <-calls; n < changes {
		t.Errorf("only %d calls during %d changes", n, changes)
	}
}

// TestNftServiceFromTheNode checks that processes of the node reach a service too, and an update
// changes the backend of new connections.
func TestNftServiceFromTheNode(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":8080", nftPodB+":8080")
	for _, backend := range []string{nftPod, nftPodB} {
		l.elements(nftSlots(nftVIP+" . tcp . 80", "pick_one4", 1, nftDest(backend, 8080))...)
		if got := l.mustReply(l.node, "tcp", "", nftVIP+":80"); got.server != backend+":8080" {
			t.Errorf("the node reached %q, want %s", got.server, backend)
		}
	}
}

func TestNftHairpin(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.pod.serve("tcp", nftPod+":8080")
	service := nftSlots(nftVIP+" . tcp . 80", "pick_one4", 1, nftDest(nftPod, 8080))
	l.elements(append(service, "hairpin4 "+nftPod+" . "+nftPod)...)
	if got := l.mustReply(l.pod, "tcp", nftPod+":0", nftVIP+":80"); got.client != nftPodGW {
		t.Errorf("a pod that reaches itself was seen as %q, want the node %s", got.client, nftPodGW)
	}
}

// TestNftMachines checks that a machine that is not a pod sees the gateway's address as source of
// packets from other clusters. At other ports, and in pods, the server sees the caller.
func TestNftMachines(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	for _, c := range []struct{ digit, vip, machine, gateway, remote, block string }{
		{"4", nftVIP, nftPod, nftPodGW, nftRemote, "242.0.0.0/8"},
		{"6", nftVIP6, nftPod6, nftPodGW6, nftRemote6, "fd00:42::/32"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			l.pod.serve(network, net.JoinHostPort(c.machine, "8080"))
			service := nftSlots(c.vip+" . "+network+" . 80", "pick_one"+c.digit, 1, nftDest(c.machine, 8080))
			remote, machine := "remote"+c.digit+" "+c.block, "external_endpoints"+c.digit+" "+c.machine+" . "
			for element, want := range map[string]string{
				machine + network + " . 8080": c.gateway, machine + network + " . 8081": c.remote, machine + "sctp . 8080": c.remote,
			} {
				l.elements(append(service, remote, element)...)
				if got := l.mustReply(l.remote, network, net.JoinHostPort(c.remote, "0"), net.JoinHostPort(c.vip, "80")); got.client != want {
					t.Errorf("%s, %s: another cluster was seen as %q, want %s", network, element, got.client, want)
				}
			}
		}
	}
}

// TestNftMarksAreKept checks that slots do not change marks, which belong to other programs
// (kube-proxy, policy routing).
func TestNftMarksAreKept(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.node.nft(`
table inet watcher {
	chain before { type filter hook prerouting priority -300; meta mark set 0x1234; }
	chain after { type filter hook postrouting priority 300; meta mark != 0x1234 drop; }
}`)
	l.pod.serve("tcp", nftPod+":8080")
	l.remote.serve("udp", nftRemote+":9000")
	lines := nftSlots(nftVIP+" . tcp . 80", "pick_many4", desired.SlotsMany, nftDest(nftPod, 8080))
	l.elements(append(lines, nftSharedLines("242.1.0.1", "242.1.0.2")...)...)
	for range 10 {
		l.mustReply(l.remote, "tcp", "", nftVIP+":80")
		l.mustReply(l.pod, "udp", "", nftRemote+":9000")
	}
	// A slot without a backend, and shared egress without an address: the packet passes
	// untranslated.
	l.elements(lines[0])
	l.remote.address("lo", nftVIP+"/32")
	l.remote.serve("tcp", nftVIP+":80")
	l.mustReply(l.pod, "tcp", "", nftVIP+":80")
}

func nftSharedLines(addresses ...string) []string {
	var lines []string
	for slot := range desired.SharedSlots {
		lines = append(lines, fmt.Sprintf("shared4 %d | %s", slot, addresses[slot%len(addresses)]))
	}
	return lines
}

// TestNftPoolsAreRefused checks that a VIP without a backend is rejected at once. Other addresses
// are not affected.
func TestNftPoolsAreRefused(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.elements("pools4 243.0.0.0/16", "pools6 fd00:43::/64")
	for _, vip := range []string{nftVIP, nftVIP6} {
		l.expectRefused(l.pod, "tcp", net.JoinHostPort(vip, "80"), unix.ECONNREFUSED)
		l.expectRefused(l.pod, "udp", net.JoinHostPort(vip, "80"), unix.ECONNREFUSED)
		l.expectRefused(l.node, "tcp", net.JoinHostPort(vip, "80"), unix.ECONNREFUSED)
		// For a local sender, Linux reports it as the error of the write.
		l.expectRefused(l.node, "udp", net.JoinHostPort(vip, "80"), unix.EPERM)
	}
	l.expectDropped(l.pod, "udp", nftPod+":0", "243.1.0.1:80")
}

// TestNftNoLeak checks that packets for the other side of a tunnel never use another path. An
// example is the default route after the tunnel's device and routes are gone.
func TestNftNoLeak(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	remote, remote6, stranger := nftRemote+":9000", net.JoinHostPort(nftRemote6, "9000"), nftFlat+":9000"
	l.remote.serve("udp", remote, remote6, stranger)
	l.elements("remote4 242.2.0.0/15", "remote6 fd00:42:2::/48")
	for _, from := range []*nftNS{l.pod, l.node} {
		for _, to := range []string{remote, remote6, stranger} {
			if _, err := from.call("udp", "", to, nftTimeout); err != nil {
				t.Errorf("through the tunnel to %s: %v", to, err)
			}
		}
	}
	// A device with a foreign name is not ours.
	l.node.must(l.node.netlink.LinkSetName(l.node.link("hw-wg1"), "other0"), "rename link")
	for _, from := range []*nftNS{l.pod, l.node} {
		if _, err := from.call("udp", "", stranger, nftTimeout); err != nil {
			t.Errorf("a packet to a local address was dropped: %v", err)
		}
		for _, to := range []string{remote, remote6} {
			if got, err := from.call("udp", "", to, nftDropTimeout); err == nil {
				t.Errorf("%s left outside the tunnel: %+v", to, got)
			}
		}
	}
}

// TestNftTranslatedTwice checks that packets with an egress address as source are dropped: another
// gateway has translated them.
func TestNftTranslatedTwice(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	const twice, twice6 = "242.1.0.9", "fd00:42:1::9"
	l.pod.address("eth0", twice+"/32", twice6+"/128")
	l.node.route(twice+"/32", nftPod)
	l.node.route(twice6+"/128", nftPod6)
	remote, remote6 := nftRemote+":9000", net.JoinHostPort(nftRemote6, "9000")
	l.remote.serve("udp", remote, remote6)
	l.elements()
	l.mustReply(l.pod, "udp", nftPodB+":0", remote)
	l.mustReply(l.pod, "udp", "["+nftPodB6+"]:0", remote6)
	l.expectDropped(l.pod, "udp", twice+":0", remote)
	l.expectDropped(l.pod, "udp", "["+twice6+"]:0", remote6)
}

func TestNftSegmentsAreClamped(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	nftApplyTable(t, l.node, desired.Table{Name: desired.TableName, MSS4: 1000, MSS6: 900})
	l.elements("keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/32", "direct4 10.7.0.0/16", "direct6 fd00:7::/32")
	l.remote.serve("tcp", nftRemote+":80", "["+nftRemote6+"]:80")
	l.pod.serve("tcp", nftPod+":80", "["+nftPod6+"]:80")
	tests := []struct {
		from *nftNS
		to   string
		most int
	}{
		{l.pod, nftRemote, 1000}, {l.pod, nftRemote6, 900}, {l.remote, nftPod, 1000}, {l.remote, nftPod6, 900},
	}
	for _, tt := range tests {
		got := l.mustReply(tt.from, "tcp", "", net.JoinHostPort(tt.to, "80"))
		// The option for timestamps takes 12 bytes of each segment.
		if got.segment > tt.most || got.segment < tt.most-12 {
			t.Errorf("segments to the caller of %s: %d bytes, want %d", tt.to, got.segment, tt.most)
		}
	}
}
