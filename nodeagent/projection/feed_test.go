package projection_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// readTwoGateways returns a clusterset without a mesh whose cluster c1 has two gateways, on nodes
// c1-a and c1-w1.
func readTwoGateways(t *testing.T) (*world, *fabric.Cluster) {
	t.Helper()
	w, _ := readWorld(t, "testdata/mixed.txtar")
	w.fabric.Shape = fabric.Shape{Mode: fabric.ModeExplicit, Edges: [][2]string{{"c1", "c2"}, {"c1", "c4"}, {"c2", "c3"}, {"c3", "c4"}}}
	c1 := w.fabric.Cluster("c1")
	c1.Gateways = append(c1.Gateways, fabric.Gateway{
		Name: "c1-b", Node: "c1-w1", Port: 51820, Ordinal: 1, Addresses: []netip.Addr{addr("241.0.0.5")},
		Keys: []fabric.Key{{Epoch: 1, Public: "pub-c1-b"}},
	})
	return w, c1
}

// TestTransitSources checks that a gateway accepts transit traffic over VXLAN from the nodes of
// its siblings. Workers and clusters that do not forward accept none.
func TestTransitSources(t *testing.T) {
	t.Parallel()
	w, c1 := readTwoGateways(t)
	for _, tt := range []struct{ name, node, want string }{
		{"first gateway", "c1-a", "siblings4 192.168.1.2"},
		{"second gateway", "c1-w1", "siblings4 192.168.1.1"},
		{"mesh", "c1-a", ""},
		{"worker", "c1-w1", ""},
	} {
		switch tt.name {
		case "mesh":
			w.fabric.Shape = fabric.Shape{}
		case "worker":
			w, c1 = readTwoGateways(t)
			c1.Gateways = c1.Gateways[:1]
		}
		in := w.inputs["c1/"+tt.node]
		in.Keys = keysOf(*c1)
		s, _ := projection.Desired(in)
		var have []string
		for _, e := range s.Elements {
			if e.Set == desired.SetSiblings {
				have = append(have, e.Key())
			}
		}
		if strings.Join(have, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, have, tt.want)
		}
	}
}

// TestFeedsGoAround checks that the feed of a neighbouring cluster uses the path of the traffic if
// their own link is down. Probes still use that link.
func TestFeedsGoAround(t *testing.T) {
	t.Parallel()
	w, c1 := readTwoGateways(t)
	direct := model.Path{Local: "c1-a", Remote: "c4-a"}
	through := model.Path{Local: "c1-a", Remote: "c2-a", Via: "c2"}
	const rules = "rule ipv4/7290 iif=lo tcpPort=4805 table=7307\nrule ipv4/7291 iif=lo tcpFrom=4805 table=7307\n"
	const route = "route 7307/241.0.0.4/32 type=unicast dev="
	for _, tt := range []struct {
		name      string
		node      string
		path, own model.Path
		want      string
	}{
		{"own link", "c1-a", direct, direct, ""},
		{"in transit", "c1-a", through, through, rules + route + "hw-tr4-4809 via=241.0.0.2 src=241.0.0.1\n"},
		{"at a sibling", "c1-w1", through, model.Path{}, rules + route + "hw-vx1 via=192.168.1.1 src=241.0.0.5\n"},
		{"a path that does not exist", "c1-a", model.Path{Local: "c1-a", Remote: "x", Via: "c2"}, model.Path{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := w.inputs["c1/"+tt.node]
			in.Keys, in.Paths, in.GatewayPaths = keysOf(*c1), maps.Clone(in.Paths), map[string]model.Path{}
			if in.Paths["c4"] = tt.path; tt.own.Local != "" {
				in.GatewayPaths["c4"] = tt.own
			}
			s, _ := projection.Desired(in)
			var have strings.Builder
			lines(&have, "rule", slices.DeleteFunc(s.Rules, func(r desired.Rule) bool { return r.Table != desired.TableFeed }))
			probes := slices.ContainsFunc(s.Routes, func(r desired.Route) bool {
				return r.Key() == "7300/241.0.0.4/32" && strings.HasPrefix(r.Device, desired.TunnelDevicePrefix)
			})
			lines(&have, "route", slices.DeleteFunc(s.Routes, func(r desired.Route) bool { return r.Table != desired.TableFeed }))
			if have.String() != tt.want || !probes {
				t.Errorf("probes have a route: %v; feeds have:\n%swant:\n%s", probes, have.String(), tt.want)
			}
		})
	}
}
