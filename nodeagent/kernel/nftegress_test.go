package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestNftEgressPrecedence checks that the most specific rule for a source address wins.
func TestNftEgressPrecedence(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.remote.serve("udp", nftRemote+":9000")
	l.remote.serve("tcp", nftRemote+":9000")
	shared := nftSharedLines("242.1.0.1", "242.1.0.2", "242.1.0.3")
	tests := []struct {
		name  string
		lines []string
		want  []string
	}{
		{
			"own address of the pod",
			[]string{"egress4 10.7.1.2 | 242.1.0.77", "keep_source4 10.7.0.0/16", "mapped4 10.7.0.0/16 | 242.4.0.0/16"},
			[]string{"242.1.0.77"},
		},
		{
			"kept",
			[]string{"egress4 10.7.1.3 | 242.1.0.77", "keep_source4 10.7.0.0/16", "mapped4 10.7.0.0/16 | 242.4.0.0/16"},
			[]string{nftPod},
		},
		{"mapped", []string{"keep_source4 10.8.0.0/16", "mapped4 10.7.0.0/16 | 242.4.0.0/16"}, []string{"242.4.1.2"}},
		{"mapped to another size of block", []string{"mapped4 10.7.1.0/24 | 242.5.9.0/24"}, []string{"242.5.9.2"}},
		{"shared", []string{"mapped4 10.8.0.0/16 | 242.4.0.0/16"}, []string{"242.1.0.1", "242.1.0.2", "242.1.0.3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l.elements(append(slices.Clone(tt.lines), shared...)...)
			for _, network := range []string{"udp", "tcp"} {
				first := l.mustReply(l.pod, network, nftPod+":0", nftRemote+":9000").client
				if !slices.Contains(tt.want, first) {
					t.Errorf("%s: seen as %s, want %v", network, first, tt.want)
				}
				// A pod has the same address in each connection.
				for range 5 {
					if again := l.mustReply(l.pod, network, nftPod+":0", nftRemote+":9000").client; again != first {
						t.Errorf("%s: seen as %s and then as %s", network, first, again)
					}
				}
			}
		})
	}
	// All shared addresses are used.
	l.elements(shared...)
	seen := map[string]bool{}
	for _, pod := range []string{nftPod, nftPodB, nftPodC} {
		seen[l.mustReply(l.pod, "udp", pod+":0", nftRemote+":9000").client] = true
	}
	for host := 10; host < 40; host++ {
		pod := netip.AddrFrom4([4]byte{10, 7, 1, byte(host)}).String()
		l.pod.address("eth0", pod+"/24")
		seen[l.mustReply(l.pod, "udp", pod+":0", nftRemote+":9000").client] = true
	}
	if len(seen) != 3 {
		t.Errorf("33 pods were seen as %v, want all 3 addresses", seen)
	}
}

func TestNftEgress6(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	to := "[" + nftRemote6 + "]:9000"
	l.remote.serve("udp", to)
	tests := []struct{ line, want string }{
		{"egress6 fd00:7:1::2 | fd00:42:1::77", "fd00:42:1::77"},
		{"keep_source6 fd00:7::/32", nftPod6},
		{"mapped6 fd00:7:1::/48 | fd00:42:4::/48", "fd00:42:4::2"},
		{"shared6 SLOTS | fd00:42:1::1", "fd00:42:1::1"},
	}
	for _, tt := range tests {
		lines := []string{tt.line}
		if strings.Contains(tt.line, "SLOTS") {
			lines = nftSharedLines("fd00:42:1::1")
			for i := range lines {
				lines[i] = strings.Replace(lines[i], "shared4", "shared6", 1)
			}
		}
		l.elements(lines...)
		if got := l.mustReply(l.pod, "udp", "["+nftPod6+"]:0", to); got.client != tt.want {
			t.Errorf("%s: seen as %q, want %s", tt.line, got.client, tt.want)
		}
	}
}

// TestNftTunnelAddressIsKept checks that packets from the gateway's own tunnel address keep it in
// the tunnel.
func TestNftTunnelAddressIsKept(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.remote.serve("udp", nftRemote+":9000")
	l.elements(append(nftSharedLines("242.1.0.1"), "tunnels4 "+nftTunAddr)...)
	got := l.mustReply(l.node, "udp", nftTunAddr+":0", nftRemote+":9000")
	if got.client != nftTunAddr {
		t.Errorf("seen as %q, want %s", got.client, nftTunAddr)
	}
	got = l.mustReply(l.node, "udp", nftPodGW+":0", nftRemote+":9000")
	if got.client != "242.1.0.1" {
		t.Errorf("a process of the node was seen as %q, want the shared address", got.client)
	}
}

// TestNftForeignMasquerade checks that a later masquerade rule of another program does not change a
// kept source, in both directions.
func TestNftForeignMasquerade(t *testing.T) {
	t.Parallel()
	l := nftNewLab(t)
	l.node.nft(`
table ip foo {
	chain post { type nat hook postrouting priority 100; masquerade; }
}`)
	l.remote.serve("udp", nftFlat+":9000", nftRemote+":9000")
	l.pod.serve("udp", nftPod+":9000")
	l.elements("keep_source4 10.7.0.0/16", "direct4 10.7.0.0/16", "remote4 10.9.0.0/16")
	if got := l.mustReply(l.pod, "udp", nftPod+":0", nftFlat+":9000"); got.client != nftPod {
		t.Errorf("out: seen as %q, want %s", got.client, nftPod)
	}
	if got := l.mustReply(l.remote, "udp", nftFlat+":0", nftPod+":9000"); got.client != nftFlat {
		t.Errorf("in: seen as %q, want %s", got.client, nftFlat)
	}
	// The same masquerade rule does translate unknown addresses.
	if got := l.mustReply(l.remote, "udp", nftRemote+":0", nftPod+":9000"); got.client != nftPodGW {
		t.Errorf("in, unknown: seen as %q, want %s", got.client, nftPodGW)
	}
}
