package endpoint

import (
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// TestCandidates checks that configured endpoints come first and an address that is both configured
// and discovered is listed once.
func TestCandidates(t *testing.T) {
	t.Parallel()
	resolved := map[string][]netip.Addr{"dns:gw.example.com": {netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}}
	tests := []struct {
		name, driver string
		endpoints    []string
		discovered   string
		want         string
		mayChange    bool
	}{
		{name: "none"},
		{name: "configured", endpoints: []string{"192.0.2.1", "192.0.2.2:6000"}, want: "192.0.2.1=192.0.2.1:51820 192.0.2.2:6000=192.0.2.2:6000"},
		{name: "a name", endpoints: []string{"dns:GW.example.com:6000", "192.0.2.1"}, mayChange: true,
			want: "dns:GW.example.com:6000=192.0.2.7:6000 192.0.2.1=192.0.2.1:51820"},
		{name: "a name without addresses", endpoints: []string{"dns:away.example.com"}, mayChange: true},
		{name: "no announcement", endpoints: []string{"seen"}, mayChange: true},
		{name: "discovered behind configured", endpoints: []string{"192.0.2.1", "node:ExternalIP", "seen"}, mayChange: true,
			discovered: "node:ExternalIP 203.0.113.9, seen 203.0.113.9:7000",
			want:       "192.0.2.1=192.0.2.1:51820 203.0.113.9 (found: node:ExternalIP)=203.0.113.9:51820 203.0.113.9:7000 (found: seen)=203.0.113.9:7000"},
		{name: "configured and discovered", endpoints: []string{"192.0.2.1", "node:ExternalIP"}, mayChange: true,
			discovered: "node:ExternalIP 192.0.2.1, node:ExternalIP 192.0.2.1:51820", want: "192.0.2.1=192.0.2.1:51820"},
		{name: "a family that the node lacks", endpoints: []string{"2001:db8::1", "node:ExternalIP"}, mayChange: true, discovered: "node:ExternalIP 2001:db8::9"},
		{name: "VXLAN", driver: fabric.DriverVXLAN, endpoints: []string{"192.0.2.1", "node:ExternalIP"}, mayChange: true,
			discovered: "node:ExternalIP 203.0.113.9", want: "192.0.2.1=192.0.2.1:51820"},
		{name: "an unknown source", endpoints: []string{"node:Hostname", "192.0.2.1"}, want: "192.0.2.1=192.0.2.1:51820"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &fabric.Gateway{Endpoints: tt.endpoints}
			var announced []model.DiscoveredEndpoint
			if tt.discovered != "" {
				announced = discovered(tt.discovered)
			}
			var got []string
			for _, c := range Candidates(g, tt.driver, 51820, resolved, announced, netip.Addr.Is4) {
				got = append(got, c.Text+"="+c.Addr.String())
			}
			if have := strings.Join(got, " "); have != tt.want || MayChange(g) != tt.mayChange {
				t.Errorf("have %s, may change %t", have, MayChange(g))
			}
		})
	}
}

// TestNames checks that the resolver gets names of remote gateways and of own load balancers.
func TestNames(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "g1", Gateways: []fabric.Gateway{{Name: "x", Endpoints: []string{"dns:own.example.com", "service:LoadBalancer"}}}},
		{Name: "g2", Gateways: []fabric.Gateway{
			{Name: "a", Endpoints: []string{"192.0.2.1", "dns:GW.example.com:6000", "dns:gw.example.com"}},
			{Name: "b", Endpoints: []string{"node:ExternalIP", "dns:b.example.com"}},
		}},
	}}
	tests := []struct {
		own, want string
		services  []model.Service
	}{
		{"g1", "b.example.com gw.example.com", nil},
		{"g1", "b.example.com gw.example.com lb.example.com", service("198.51.100.80", "LB.example.com", "2001:db8::1", "not a name")},
		{"g2", "own.example.com", service("LB.example.com")},
		{"elsewhere", "b.example.com gw.example.com own.example.com", nil},
	}
	for _, tt := range tests {
		if have := strings.Join(HostNames(f, tt.own, model.Facts{Services: tt.services}), " "); have != tt.want {
			t.Errorf("%s: %s, want %s", tt.own, have, tt.want)
		}
	}
}
