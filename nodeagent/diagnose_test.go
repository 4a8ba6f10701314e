package nodeagent

import (
	"fmt"
	"net/netip"
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

func TestPacketsOf(t *testing.T) {
	t.Parallel()
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	f := &fabric.Fabric{
		GlobalPools: prefixes("242.0.0.0/8"), ServicePools: prefixes("243.0.0.0/16", "fd00:43::/64"), TunnelPools: prefixes("241.0.0.0/16"),
		DNS:            fabric.DNS{Address: netip.MustParseAddr("169.254.73.53")},
		DynamicExports: &fabric.DynamicExports{VIPs: prefixes("243.0.128.0/17")},
		Clusters: []fabric.Cluster{
			{Name: "own", PodCIDRs: prefixes("10.1.0.0/16"), GlobalCIDRs: prefixes("242.1.0.0/16")},
			{Name: "flat", PodCIDRs: prefixes("10.2.0.0/16", "fd00:2::/56"), ServiceCIDRs: prefixes("10.102.0.0/16"), GlobalCIDRs: prefixes("245.2.0.0/24")},
			{Name: "hidden", PodCIDRs: prefixes("10.3.0.0/16"), Globalnet: true, GlobalCIDRs: prefixes("242.3.0.0/16")},
			{Name: "half", PodCIDRs: prefixes("10.3.0.0/16", "fd00:4::/56"), Globalnet: true, FlatFamilies: []int{6}, GlobalCIDRs: prefixes("242.4.0.0/16")},
		},
	}
	have := packetsOf(f, "own")
	const want = "[242.0.0.0/8 10.2.0.0/16 10.102.0.0/16 243.0.0.0/16 245.2.0.0/24 169.254.73.53/32 fd00:2::/56 fd00:4::/56 fd00:43::/64]"
	if fmt.Sprint(have.Prefixes) != want {
		t.Errorf("have %v, want %s", have.Prefixes, want)
	}
	if fmt.Sprint(have.Not) != "[241.0.0.0/16]" {
		t.Errorf("left out: %v", have.Not)
	}
}
