package projection_test

import (
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestReaches checks that candidates have the port of the link and a family of the node. With VXLAN
// only configured endpoints are candidates.
func TestReaches(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddr
	tests := []struct {
		name, driver string
		endpoints    []string
		discovered   []model.DiscoveredEndpoint
		want         string
		mayChange    bool
	}{
		{name: "no announcement", endpoints: []string{"seen"}, mayChange: true},
		{name: "discovered behind configured", endpoints: []string{"192.0.2.1", "node:ExternalIP", "seen"}, mayChange: true,
			discovered: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("203.0.113.9")}, {Source: "seen", Addr: at("203.0.113.9"), Port: 7000}},
			want:       "192.0.2.1=192.0.2.1:51820 203.0.113.9 (found: node:ExternalIP)=203.0.113.9:51820 203.0.113.9:7000 (found: seen)=203.0.113.9:7000"},
		{name: "a family that the node lacks", endpoints: []string{"node:ExternalIP"}, mayChange: true,
			discovered: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("2001:db8::9")}}},
		{name: "vxlan", driver: fabric.DriverVXLAN, endpoints: []string{"192.0.2.1", "node:ExternalIP"}, mayChange: true,
			discovered: []model.DiscoveredEndpoint{{Source: "node:ExternalIP", Addr: at("203.0.113.9")}}, want: "192.0.2.1=192.0.2.1:51820"},
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
				Local: model.HostState{Discovered: map[string][]model.DiscoveredEndpoint{"g2/b": tt.discovered}},
			}
			reaches := projection.Reaches(in)
			if len(reaches) != 1 {
				t.Fatalf("reaches %+v", reaches)
			}
			var have []string
			for _, c := range reaches[0].Candidates {
				have = append(have, c.Text+"="+c.Addr.String())
			}
			if got := strings.Join(have, " "); got != tt.want || reaches[0].MayChange != tt.mayChange {
				t.Errorf("have %s, may change %t", got, reaches[0].MayChange)
			}
		})
	}
}
