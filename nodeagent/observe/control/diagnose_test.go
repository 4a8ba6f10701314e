package control

import (
	"fmt"
	"net/netip"
	"net/url"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

func TestParseDiagnoseRequest(t *testing.T) {
	t.Parallel()
	text := func(s traceRequest) string { return fmt.Sprint(s.duration, s.addresses, s.exports) }
	for _, tt := range []struct{ query, want, err string }{
		{"for=10s", "10s [] []", ""},
		{"for=2s&address=10.7.1.9&address=10.8.3.4/16&export=shop/web", "2s [10.7.1.9/32 10.8.0.0/16] [shop/web]", ""},
		{"for=1s", "", "for: want a duration from 2s to 5m0s"},
		{"for=6m", "", "for: want a duration from 2s to 5m0s"},
		{"", "", "for: want a duration from 2s to 5m0s"},
		{"for=10s&address=shop", "", `address "shop": want an address (10.7.1.9) or a prefix (10.7.0.0/16)`},
		{"for=10s&address=", "", `address "": want an address (10.7.1.9) or a prefix (10.7.0.0/16)`},
		{"for=10s&address=10.7.0.0/33", "", `address "10.7.0.0/33": want an address (10.7.1.9) or a prefix (10.7.0.0/16)`},
	} {
		query, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		have, err := parseDiagnoseRequest(query)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: error %v, want %s", tt.query, err, tt.err)
			}
		} else if err != nil || text(have) != tt.want {
			t.Errorf("%s: %s %v, want %s", tt.query, text(have), err, tt.want)
		}
	}
}

// TestNarrowed checks that an export is traced at all addresses that its packets can have:
// clusterset IPs, addresses in each cluster, addresses from feeds, and addresses of endpoints in
// this cluster.
func TestNarrowed(t *testing.T) {
	t.Parallel()
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	in := projection.Input{
		Fabric: &fabric.Fabric{Exports: []fabric.Export{
			{Namespace: "shop", Name: "web", VIPs: addrs("243.0.0.1", "fd00:43::1"), Clusters: []fabric.ExportCluster{
				{Name: "g1", IPs: addrs("242.1.0.9")}, {Name: "g2", Hosts: []fabric.Host{{Name: "web-0", IPs: addrs("242.2.0.7")}}}}},
			{Namespace: "shop", Name: "other", VIPs: addrs("243.0.0.2")},
			{Namespace: "shop", Name: "none"},
		}},
		ClusterStates: map[string]model.ClusterState{"g2": {Exports: []model.ExportState{
			{Namespace: "shop", Name: "web", Hosts: []model.ExportHost{{Name: "web-0", IPs: addrs("242.2.0.7", "10.9.0.4")}}},
			{Namespace: "shop", Name: "other", Hosts: []model.ExportHost{{IPs: addrs("10.9.0.5")}}}}}},
	}
	in.Facts.Services = []model.Service{
		{Namespace: "shop", Name: "web", Endpoints: []model.Endpoint{{Addrs: addrs("10.7.1.9")}}},
		{Namespace: "shop", Name: "other", Endpoints: []model.Endpoint{{Addrs: addrs("10.7.1.8")}}},
	}
	for _, tt := range []struct {
		request   traceRequest
		want, err string
	}{
		{traceRequest{}, "[]", ""},
		{traceRequest{addresses: []netip.Prefix{netip.MustParsePrefix("10.7.2.5/32"), netip.MustParsePrefix("10.7.0.0/16")}}, "[10.7.0.0/16]", ""},
		{traceRequest{exports: []string{"shop/web"}}, "[10.7.1.9/32 10.9.0.4/32 242.1.0.9/32 242.2.0.7/32 243.0.0.1/32 fd00:43::1/128]", ""},
		{traceRequest{exports: []string{"shop/none"}}, "", "export \"shop/none\" not found or without an address here (want namespace/name, see hawser show exports)"},
		{traceRequest{exports: []string{"web"}}, "", "export \"web\" not found or without an address here (want namespace/name, see hawser show exports)"},
	} {
		have, err := narrowed(in, tt.request)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%v: error %v, want %s", tt.request, err, tt.err)
			}
		} else if err != nil || fmt.Sprint(have) != tt.want {
			t.Errorf("%v: %v %v, want %s", tt.request, have, err, tt.want)
		}
	}
}

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
	if fmt.Sprint(have.Exclude) != "[241.0.0.0/16]" {
		t.Errorf("excluded: %v", have.Exclude)
	}
}
