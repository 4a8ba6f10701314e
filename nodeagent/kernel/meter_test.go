package kernel

import (
	"net/netip"
	"testing"
)

// TestRemotePackets checks that packets into a tunnel count for the prefix of their destination.
// This includes both directions of a flow and both families. Packets of the gateway to the remote
// gateway count for no cluster.
func TestRemotePackets(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	remote := []string{"remote4 241.0.0.0/16", "remote4 242.2.0.0/16", "remote4 242.3.0.0/16", "remote6 fd00:42:2::/48", "keep_source4 10.7.0.0/16", "keep_source6 fd00:7::/32"}
	l.elements(append(remote, "tunnels4 "+nftTunAddr, "tunnels6 "+nftTunAddr6)...)
	ns, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	read := func() (counts map[netip.Addr]uint64) {
		t.Helper()
		l.node.inside(func() { counts, err = ns.RemotePackets(t.Context()) })
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	prefix, other, prefix6 := netip.MustParseAddr("242.2.0.0"), netip.MustParseAddr("242.3.0.0"), netip.MustParseAddr("fd00:42:2::")
	if counts := read(); len(counts) != 4 || counts[prefix] != 0 {
		t.Fatalf("before any packet: %v", counts)
	}
	l.remote.serve("udp", nftRemote+":9000", "["+nftRemote6+"]:9000", nftPeer+":9000")
	for range 3 {
		l.mustReply(l.pod, "udp", nftPod+":0", nftRemote+":9000")
	}
	l.mustReply(l.pod, "udp", "["+nftPod6+"]:0", "["+nftRemote6+"]:9000")
	l.mustReply(l.node, "udp", nftTunAddr+":0", nftPeer+":9000")
	counts := read()
	if counts[prefix] < 3 || counts[prefix6] < 1 || counts[other] != 0 {
		t.Errorf("after 3 packets to %s and 1 to %s: %v", prefix, prefix6, counts)
	}
	// Writing the same elements again keeps the counters.
	l.change(append(remote, "tunnels4 "+nftTunAddr, "tunnels6 "+nftTunAddr6)...)
	if again := read(); again[prefix] != counts[prefix] {
		t.Errorf("%d packets after the elements were written again, %d before", again[prefix], counts[prefix])
	}
}
