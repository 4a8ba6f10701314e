package nftrace

import (
	"net/netip"
	"strings"
	"testing"
)

// TestPolicyAdvice checks the advice for a drop in a NetworkPolicy's chain. It contains the block
// of the other cluster, at either end of the packet.
func TestPolicyAdvice(t *testing.T) {
	t.Parallel()
	blocks := []netip.Prefix{netip.MustParsePrefix("242.8.0.0/15"), netip.MustParsePrefix("242.30.0.0/15")}
	for _, test := range []struct{ from, to, chain, want string }{
		{"242.30.4.5:4001", "10.7.2.3:80", "cali-tw-web", "admit the other cluster: ipBlock 242.30.0.0/15,"},
		{"10.7.2.3:4001", "242.9.0.1:80", "cali-fw-web", "admit the other cluster: ipBlock 242.8.0.0/15,"},
		{"10.7.2.3:4001", "10.9.0.1:80", "cali-fw-web", "ipBlock of its global addresses, or of its podCIDRs if it is flat,"},
		{"242.30.4.5:4001", "10.7.2.3:80", "FORWARD", "let it forward the clusterset's addresses"},
	} {
		f := &Flow{Protocol: "tcp", From: netip.MustParseAddrPort(test.from), To: netip.MustParseAddrPort(test.to)}
		j := &flowTrace{flow: f, last: f, end: Dropped, lastRule: RuleRef{"ip", "filter", test.chain, 11}}
		if have := explainDrop(j, blocks).Next; !strings.Contains(have, test.want) {
			t.Errorf("%+v: %q", test, have)
		}
	}
}
