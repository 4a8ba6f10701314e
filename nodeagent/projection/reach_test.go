package projection_test

import (
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestCandidates: what is written comes first, whatever is found; an address that is both is
// there once; over VXLAN nothing counts that is found.
func TestCandidates(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	tests := []struct {
		name, driver string
		endpoints    []string
		found        []model.DiscoveredEndpoint
		want         string
		named        bool
	}{
		{name: "written alone", endpoints: []string{"192.0.2.1", "192.0.2.2:6000"}, want: "192.0.2.1=192.0.2.1:51820 192.0.2.2:6000=192.0.2.2:6000"},
		{name: "nothing was heard", endpoints: []string{"seen"}, named: true},
		{name: "found behind written", endpoints: []string{"192.0.2.1", "node:ExternalIP", "seen"}, named: true,
			found: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("203.0.113.9")}, {Source: "seen", Addr: at("203.0.113.9"), Port: 7000}},
			want:  "192.0.2.1=192.0.2.1:51820 203.0.113.9 (found: node:ExternalIP)=203.0.113.9:51820 203.0.113.9:7000 (found: seen)=203.0.113.9:7000"},
		{name: "found what is written", endpoints: []string{"192.0.2.1", "node:ExternalIP"}, named: true,
			found: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("192.0.2.1")}}, want: "192.0.2.1=192.0.2.1:51820"},
		{name: "a family that the node lacks", endpoints: []string{"node:ExternalIP"}, named: true,
			found: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("2001:db8::9")}}},
		{name: "vxlan", driver: fabric.DriverVXLAN, endpoints: []string{"192.0.2.1", "node:ExternalIP"}, named: true,
			found: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("203.0.113.9")}}, want: "192.0.2.1=192.0.2.1:51820"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			driver := tt.driver
			if driver == "" {
				driver = fabric.DriverWireguard
			}
			in := projection.Input{
				Fabric: &fabric.Fabric{Tunnel: fabric.TunnelDefaults{Driver: driver}, Epochs: []int{1}, Clusters: []fabric.Cluster{
					{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1", Port: 51820}}},
					{Name: "g2", Gateways: []fabric.Gateway{{Name: "b", Port: 51820, Endpoints: tt.endpoints}}},
				}},
				Cluster: "g1", Node: "n1", Facts: model.Facts{Nodes: []model.Node{{Name: "n1", Addrs: []netip.Addr{at("172.18.0.2")}}}},
				Local: model.HostState{Discovered: map[string][]model.DiscoveredEndpoint{"g2/b": tt.found}},
			}
			reaches := projection.Reaches(in)
			if len(reaches) != 1 {
				t.Fatalf("reaches %+v", reaches)
			}
			var have []string
			for _, c := range reaches[0].Candidates {
				have = append(have, c.Text+"="+c.Addr.String())
			}
			if got := strings.Join(have, " "); got != tt.want || reaches[0].Named != tt.named {
				t.Errorf("have %s, named %t", got, reaches[0].Named)
			}
		})
	}
}
