package uninstall

import (
	"context"
	"net/netip"
	"testing"

	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/schema/fabric"
)

// TestStubs takes out what agents write, also by the fabric that took them down.
func TestStubs(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{
		Name: "demo", Domain: "clusterset.local", ExtraDomains: []string{"demo.example"},
		ServicePools: []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")},
		DNS:          fabric.DNS{Address: netip.MustParseAddr("169.254.20.1"), IPv6Address: netip.MustParseAddr("fd00::53")},
		Clusters:     []fabric.Cluster{{Name: "g1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("fd07::/64")}}},
	}
	forward := corefile.ForwardOf(f, &f.Clusters[0])
	packed, _, err := decommissionFabric(f, "demo")
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := fabric.Decode(packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"", `{"other.example": ["192.0.2.1"]}`} {
		text, err := corefile.InsertStub(before, forward)
		if err != nil {
			t.Fatal(err)
		}
		for name, fabric := range map[string]*fabric.Fabric{"current": f, "decommissioned": after} {
			rest, err := withoutStubs(text, forwardsOf(fabric))
			if err != nil || rest != before {
				t.Errorf("%s: %q became %q and then %q (%v)", name, before, text, rest, err)
			}
		}
	}
}

// TestUnreadableFabric tests that an API error is not the same as a cluster without a fabric.
func TestUnreadableFabric(t *testing.T) {
	t.Parallel()
	_, c := fakeapi.New(t, "g1")
	if forwards, err := fabricForwards(t.Context(), c); len(forwards) > 0 || err != nil {
		t.Errorf("without a fabric: %v, %v", forwards, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fabricForwards(ctx, c); err == nil {
		t.Error("no error although the fabric cannot be read")
	}
}
