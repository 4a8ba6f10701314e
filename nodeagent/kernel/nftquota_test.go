package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftQuotaLab returns a lab with a quota and pods that use shared egress addresses.
func nftQuotaLab(t *testing.T, connections int) *nftLab {
	l := nftNewLab(t)
	table := nftSampleTable()
	table.Connections = connections
	nftApplyTable(t, l.node, table)
	shared := append(nftSharedLines("242.1.0.1", "242.1.0.2"), "shared6 0 | fd00:42:1::1")
	for slot := 1; slot < desired.SharedSlots; slot++ {
		shared = append(shared, fmt.Sprintf("shared6 %d | fd00:42:1::1", slot))
	}
	l.elements(shared...)
	l.waitUntilQuiet()
	return l
}

// open sends the first packets of connections from ports of a pod, all at once. It returns the
// number of connections that the node accepted.
func (l *nftLab) open(pod string, first, count int, flags byte) int {
	l.t.Helper()
	from := netip.MustParseAddr(pod)
	var out net.PacketConn
	var err error
	l.pod.inside(func() { out, err = net.ListenPacket("ip4:tcp", pod) })
	l.pod.must(err, "open a socket for segments")
	defer out.Close()
	had, dropped := l.connections(from), l.quotaDrops()
	to := netip.MustParseAddrPort(nftRemote + ":80")
	for port := first; port < first+count; port++ {
		s := nftTCPSegment{from: netip.AddrPortFrom(from, uint16(port)), to: to, flags: flags}
		_, err := out.WriteTo(s.bytes(), &net.IPAddr{IP: to.Addr().AsSlice()})
		l.pod.must(err, "send a segment")
	}
	for end := time.Now().Add(nftTimeout); ; {
		took := l.connections(from) - had
		if took+l.quotaDrops()-dropped == count {
			return took
		}
		if time.Now().After(end) {
			l.t.Fatalf("of %d segments %d were accepted and %d dropped", count, took, l.quotaDrops()-dropped)
		}
	}
}

// awaitFreeQuota waits until the pod may open one connection again, from the given port.
func (l *nftLab) awaitFreeQuota(pod string, port int) {
	l.t.Helper()
	for end := time.Now().Add(nftTimeout); l.open(pod, port, 1, flagSyn) == 0; port++ {
		if time.Now().After(end) {
			l.t.Fatal("the pod stays at its quota")
		}
		time.Sleep(nftQuotaPause / 10)
	}
}

// connections returns the number of conntrack entries of a pod on the node.
func (l *nftLab) connections(pod netip.Addr) int {
	l.t.Helper()
	flows, err := l.node.netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	l.node.must(err, "list conntrack")
	count := 0
	for _, f := range flows {
		if f.Forward.SrcIP.Equal(pod.AsSlice()) {
			count++
		}
	}
	return count
}

// quotaDrops returns the number of packets that the quota dropped.
func (l *nftLab) quotaDrops() int {
	l.t.Helper()
	_, rest, _ := strings.Cut(l.node.nft("list chain inet hawser drop_quota"), "packets ")
	count := 0
	_, err := fmt.Sscan(rest, &count)
	l.node.must(err, "read the counter of drop_quota")
	return count
}

// expectPassed checks that packets of existing connections pass.
func (l *nftLab) expectPassed(pod string, first, count int) {
	l.t.Helper()
	for port := first; port < first+count; port++ {
		s := nftTCPSegment{
			from: netip.AddrPortFrom(netip.MustParseAddr(pod), uint16(port)), to: netip.MustParseAddrPort(nftRemote + ":80"), flags: flagSyn,
		}
		if !l.send(l.pod, l.remote, s).IsValid() {
			l.t.Errorf("a packet of the connection from %s does not pass", s.from)
		}
	}
}

// TestNftQuota checks that a pod at its quota cannot start a connection, not even in the middle of
// a stream. Its existing connections work, and other pods are not affected.
func TestNftQuota(t *testing.T) {
	t.Parallel()
	l := nftQuotaLab(t, 6)
	if n := l.open(nftPod, 7000, 8, flagSyn); n != 6 {
		t.Fatalf("%d connections were accepted, want 6", n)
	}
	if n := l.open(nftPod, 7100, 2, flagAck); n != 0 {
		t.Errorf("%d connections were accepted beyond the quota", n)
	}
	l.expectPassed(nftPod, 7000, 6)
	if n := l.open(nftPodB, 7000, 6, flagSyn); n != 6 {
		t.Errorf("%d of 6 connections of another pod were accepted", n)
	}
	if n := l.quotaDrops(); n != 4 {
		t.Errorf("%d packets were counted, want 4", n)
	}
}

// TestNftQuota6 is TestNftQuota over IPv6 and UDP.
func TestNftQuota6(t *testing.T) {
	t.Parallel()
	l := nftQuotaLab(t, 3)
	to := "[" + nftRemote6 + "]:9000"
	l.remote.serve("udp", to)
	for port := 7000; port < 7003; port++ {
		l.mustReply(l.pod, "udp", fmt.Sprintf("[%s]:%d", nftPod6, port), to)
	}
	l.expectDropped(l.pod, "udp", "["+nftPod6+"]:7003", to)
	l.mustReply(l.pod, "udp", "["+nftPodB6+"]:7003", to)
	l.mustReply(l.pod, "udp", "["+nftPod6+"]:7000", to)
}

// TestNftQuotaIsReleased checks that connections that ended no longer count.
func TestNftQuotaIsReleased(t *testing.T) {
	t.Parallel()
	l := nftQuotaLab(t, 4)
	if n := l.open(nftPod, 7000, 5, flagSyn); n != 4 {
		t.Fatalf("%d connections were accepted, want 4", n)
	}
	if _, err := l.node.netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, nftAllFlows{}); err != nil {
		t.Fatal(err)
	}
	l.awaitFreeQuota(nftPod, 7100)
	if n := l.open(nftPod, 7500, 5, flagSyn); n != 3 {
		t.Errorf("one and %d connections were accepted after the others ended, want one and 3", n)
	}
}

// TestNftQuotaIsSampled checks that with a large quota, only a random fraction of the connections
// is counted. A pod gets about its quota. Retries do not get it more connections, and each
// connection that ends frees one.
func TestNftQuotaIsSampled(t *testing.T) {
	t.Parallel()
	const quota = 4 * nftQuotaSample
	// One in four flows is listed. The list reaches 256 after quota flows, with a standard
	// deviation of 55 (sqrt(4*3*256)). The limits are five times that.
	const least, most = quota * 73 / 100, quota * 127 / 100
	l := nftQuotaLab(t, quota)
	took := l.open(nftPod, 20000, 2*quota, flagSyn)
	if took < least || took > most {
		t.Fatalf("%d connections were accepted, want between %d and %d", took, least, most)
	}
	if more := l.open(nftPod, 30000, 2*quota, flagSyn); more > most-took && more > 16 {
		t.Errorf("%d more connections were accepted beyond the quota", more)
	}
	had := l.connections(netip.MustParseAddr(nftPod))
	half := nftPorts{from: 20000, to: 20000 + uint16(took/2)}
	if _, err := l.node.netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, half); err != nil {
		t.Fatal(err)
	}
	l.awaitFreeQuota(nftPod, 40000)
	again := l.open(nftPod, 41000, 2*quota, flagSyn)
	if n := l.connections(netip.MustParseAddr(nftPod)); n < least || n > most {
		t.Errorf("of %d connections half ended, %d were accepted: now %d, want between %d and %d", had, again, n, least, most)
	}
	kind := NewElements(l.node.opts())
	have, err := kind.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range have {
		if e.Set == desired.SetQuota || e.Set == desired.SetOverQuota || e.Set == desired.SetCountAll {
			t.Fatalf("Observe returned elements that the rules added: %v", e)
		}
	}
}

// nftPorts matches flows whose client port is in a range.
type nftPorts struct{ from, to uint16 }

func (p nftPorts) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return p.from <= f.Forward.SrcPort && f.Forward.SrcPort < p.to
}

// TestNftQuotaChanges checks that a changed quota recounts, because elements keep their initial
// limit.
func TestNftQuotaChanges(t *testing.T) {
	t.Parallel()
	l := nftQuotaLab(t, 2)
	if n := l.open(nftPod, 7000, 4, flagSyn); n != 2 {
		t.Fatalf("%d connections were accepted, want 2", n)
	}
	table := nftSampleTable()
	for i, connections := range []int{8, 3, 0} {
		table.Connections = connections
		nftApplyTable(t, l.node, table)
		nftExpectUnchangedTable(t, l.node, table)
		want := connections
		if connections == 0 {
			want = 12
		}
		if n := l.open(nftPod, 7100+100*i, 12, flagSyn); n != want {
			t.Errorf("quota %d: %d connections were accepted, want %d", connections, n, want)
		}
	}
}

// TestNftCountsConnections checks that the test of the kernel's support changes nothing in the
// ruleset.
func TestNftCountsConnections(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.nft(nftForeign)
	before := ns.nft("list ruleset")
	conn, err := nftables.Dial(int(ns.fd))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	generation, err := conn.Generation()
	if err != nil {
		t.Fatal(err)
	}
	counts, err := nftCountsConnections(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !counts {
		t.Error("CountsConnections reported false for a kernel that counts connections")
	}
	if after, err := conn.Generation(); err != nil || after != generation {
		t.Errorf("ruleset of generation %d, was %d (%v)", after, generation, err)
	}
	if d := cmp.Diff(before, ns.nft("list ruleset")); d != "" {
		t.Errorf("ruleset (-before +after):\n%s", d)
	}
}
