package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixesOf(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// TestForeignRules checks that ForeignRules returns exactly the rules that match packets of pods to
// other clusters. The rules are from VPNs, CNIs and policy routing of real nodes.
func TestForeignRules(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.up("lo")
	ns.ip("link add wt0 type veth peer name wt1", "link set wt1 up")
	ns.up("wt0")
	ns.address("wt0", "100.90.1.2/16", "fd00:90::2/64")
	ns.address("lo", "10.2.9.9/32") // local table
	ns.ip("route add default dev wt0 table 7120", "route add default dev wt0 table 51820", "route add 10.2.5.0/24 dev wt0 table 500",
		"route add 192.168.0.0/16 dev wt0 table 501", "-6 route add default dev wt0 table 7120", "route add default dev wt0 table 502")
	for _, tt := range []struct {
		rules []string
		want  []string
	}{
		{[]string{"pref 105 lookup main suppress_prefixlength 0", "pref 110 not fwmark 0x1bd00 lookup 7120"},
			[]string{"ip rule 110 (not from all fwmark 0x1bd00) to table 7120"}},
		{[]string{"pref 1536 from 10.7.1.9 lookup 502", "pref 1536 from 192.0.2.1 lookup 502", "pref 512 to 10.7.1.9 lookup main"},
			[]string{"ip rule 1536 (from 10.7.1.9) to table 502"}},
		{[]string{"pref 100 lookup 500"}, []string{"ip rule 100 (from all) to table 500"}},
		{[]string{"pref 100 to 10.2.0.0/16 unreachable"}, []string{"ip rule 100 (from all to 10.2.0.0/16)"}},
		{[]string{"pref 100 lookup 501", "pref 9 fwmark 0x200/0xf00 lookup 502", "pref 101 ipproto udp dport 53 lookup 502",
			"pref 102 iif lo lookup 502", "pref 103 to 10.9.0.0/16 lookup 502", "pref 9000 lookup 502", "pref 104 lookup 502 protocol 73"}, nil},
	} {
		for _, r := range tt.rules {
			ns.ip("rule add " + r)
		}
		var have []string
		var err error
		ns.inside(func() {
			have, err = ForeignRules(prefixesOf("10.2.0.0/16", "242.0.0.0/8"), prefixesOf("10.7.0.0/16"))
		})
		ns.must(err, "read rules")
		if diff := cmp.Diff(tt.want, have); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.rules, diff)
		}
		for _, r := range tt.rules {
			ns.ip("rule del " + r)
		}
	}
	ns.ip("-6 rule add pref 110 lookup 7120")
	var have []string
	var err error
	ns.inside(func() { have, err = ForeignRules(prefixesOf("fd00:42::/32"), prefixesOf("fd00:7::/48")) })
	ns.must(err, "read rules")
	if len(have) != 1 {
		t.Errorf("IPv6: %q", have)
	}
}

// TestOnLink checks that OnLink returns only the routes to foreign devices without a next hop.
func TestOnLink(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.ip("link add cali1 type veth peer name hw-vx0")
	ns.up("cali1")
	ns.up("hw-vx0")
	ns.address("cali1", "172.18.0.3/16")
	ns.ip("route add 10.2.1.7/32 dev cali1", "route add 10.2.2.0/24 via 172.18.0.1", "route add 10.2.3.0/24 dev hw-vx0",
		"route add blackhole 10.2.4.0/24", "-6 route add fd00:2::7/128 dev cali1")
	var have []netip.Prefix
	var err error
	ns.inside(func() { have, err = OnLink(prefixesOf("10.2.0.0/16", "fd00:2::/48")) })
	ns.must(err, "read routes")
	if diff := cmp.Diff(prefixesOf("10.2.1.7/32", "fd00:2::7/128"), have, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
