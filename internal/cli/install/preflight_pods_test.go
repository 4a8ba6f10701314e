package install

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/portcheck"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestConnectedNetworksOfPreflight checks that preflight reports a network of a gateway's node if
// it overlaps addresses of another cluster.
func TestConnectedNetworksOfPreflight(t *testing.T) {
	t.Parallel()
	prefixes := func(texts ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "a", PodCIDRs: prefixes("10.8.0.0/16")},
		{Name: "b", PodCIDRs: prefixes("10.9.0.0/16"), ServiceCIDRs: prefixes("10.99.0.0/16")},
		{Name: "c", Globalnet: true, PodCIDRs: prefixes("10.10.0.0/16"), GlobalCIDRs: prefixes("242.3.0.0/24")},
		{Name: "d", PodCIDRs: prefixes("10.8.0.0/16")},
	}}
	for network, want := range map[string]string{
		"10.9.5.0/24":  "node n is connected to 10.9.5.0/24 on eth1, which overlaps 10.9.0.0/16 of cluster b: it sends nothing for these addresses to the cluster",
		"10.99.0.0/16": "node n is connected to 10.99.0.0/16 on eth1, which overlaps 10.99.0.0/16 of cluster b: it sends nothing for these addresses to the cluster",
		"242.0.0.0/8":  "node n is connected to 242.0.0.0/8 on eth1, which overlaps 242.3.0.0/24 of cluster c: it sends nothing for these addresses to the cluster",
		"10.8.1.0/24":  "", // its own pods
		"10.10.1.0/24": "", // behind global addresses
		"192.0.2.0/24": "",
	} {
		p := &probePod{gateway: &fabric.Gateway{Name: "g", Node: "n"}, cluster: "a",
			report: &portcheck.Report{Networks: []model.Network{{Prefix: netip.MustParsePrefix(network), Link: "eth1"}}}}
		list := p.connected(f)
		have := ""
		for _, d := range list {
			have += d.Summary
			if d.Code != status.ConnectedNetwork || d.Path != "clusters[a].gateways[g]" {
				t.Errorf("%s: %+v", network, d)
			}
		}
		if have != want {
			t.Errorf("%s: have %q, want %q", network, have, want)
		}
	}
	if list := (&probePod{cluster: "a"}).connected(f); list != nil {
		t.Errorf("a pod that has not run: %v", list)
	}
}
