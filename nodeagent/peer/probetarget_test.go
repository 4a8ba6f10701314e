package peer

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
)

// TestCandidateAddr checks that the address of a tunnel yields the candidate that it is for.
func TestCandidateAddr(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddrPort
	inRow := probeTarget{offset: 63}
	// One IKE port for all base ports, except those that a router forwards.
	ike := probeTarget{ikePort: func(base int) int {
		if base == 6000 {
			return 6065
		}
		return 4500
	}}
	candidates := []model.Candidate{{Addr: addr("192.0.2.1:51820")}, {Addr: addr("203.0.113.7:6000")}, {Addr: addr("[2001:db8::1]:51820")}}
	for _, target := range []probeTarget{inRow, ike} {
		for _, c := range candidates {
			if have := target.candidateAddr(target.outerEndpoint(c.Addr), candidates); have != c.Addr {
				t.Errorf("IPsec %t: %s yields %s", target.ikePort != nil, c.Addr, have)
			}
		}
	}
	tests := []struct {
		name   string
		target probeTarget
		text   string
		want   netip.AddrPort
	}{
		{"a peer that dials in", inRow, "198.51.100.1:40063", addr("198.51.100.1:40000")},
		{"IPv4 in IPv6", inRow, "[::ffff:198.51.100.1]:40063", addr("198.51.100.1:40000")},
		{"no room for the base port", inRow, "198.51.100.1:63", netip.AddrPort{}},
		{"no endpoint yet", inRow, "", netip.AddrPort{}},
		{"IPsec peer that dials in", ike, "198.51.100.1:40000", addr("198.51.100.1:40000")},
		{"IPsec without an endpoint", ike, "", netip.AddrPort{}},
	}
	for _, tt := range tests {
		if have := tt.target.candidateAddr(parseAddrPort(tt.text), candidates); have != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, have, tt.want)
		}
	}
}
