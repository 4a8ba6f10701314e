package mapstatus

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
)

// pairOf are two clusters, of which b has two gateways.
func pairOf() *clustermap.Map {
	return clustermap.New(&fabric.Fabric{
		Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard},
		Clusters: []fabric.Cluster{
			{Name: "a", Gateways: []fabric.Gateway{{Name: "x"}}},
			{Name: "b", Gateways: []fabric.Gateway{{Name: "y"}, {Name: "z"}}},
		},
	})
}

func agent(cluster, gateway string, links ...status.Connection) status.Status {
	for i := range links {
		links[i].Gateway = gateway
	}
	return status.Status{Cluster: cluster, Gateway: gateway, Ready: true, Connections: links}
}

func to(cluster, gateway, state string, active bool) status.Connection {
	return status.Connection{RemoteCluster: cluster, RemoteGateway: gateway, Status: state, Active: active,
		RTT: &status.RTT{Avg: 1500}, Loss: 0.25}
}

// summaryOf returns the map in short form.
func summaryOf(m *clustermap.Map) []string {
	var out []string
	for _, c := range m.Clusters {
		line := c.Name + " " + c.State
		for _, g := range c.Gateways {
			line += ", " + g.Name + " " + g.State
		}
		out = append(out, line)
	}
	for _, l := range m.Links {
		line := fmt.Sprintf("%s-%s %s %v %d %.2f", l.Between[0], l.Between[1], l.State, l.Uses, l.RTT, l.Loss)
		if l.Explained {
			line += " explained"
		}
		out = append(out, line)
	}
	return out
}

func TestFill(t *testing.T) {
	t.Parallel()
	const up, trying, down = status.Connected, status.Connecting, status.Disconnected
	unready := agent("a", "x", to("b", "y", up, true), to("b", "z", up, false))
	unready.Ready = false
	for _, tt := range []struct {
		name    string
		reports Reports
		want    []string
	}{
		{"no answers", Reports{}, []string{"a unknown, x unknown", "b unknown, y unknown, z unknown", "a-b unknown [] 0 0.00"}},
		{"all agents are silent", Reports{Silent: map[string]bool{"a/x": true, "b/y": true, "b/z": true}, Complete: true},
			[]string{"a silent, x silent", "b silent, y silent, z silent", "a-b unknown [] 0 0.00"}},
		{"all is well", Reports{Complete: true, Agents: []status.Status{
			agent("a", "x", to("b", "y", up, true), to("b", "z", up, false)),
			agent("b", "y", to("a", "x", up, true)), agent("b", "z", to("a", "x", up, false)),
		}}, []string{"a up, x up", "b up, y up, z up", "a-b up [x-y] 1500 0.25"}},
		{"a gateway is gone: its peers stay up", Reports{Complete: true, Silent: map[string]bool{"b/y": true}, Agents: []status.Status{
			agent("a", "x", to("b", "y", down, false), to("b", "z", up, true)), agent("b", "z", to("a", "x", up, true)),
		}}, []string{"a up, x up", "b partly, y down, z up", "a-b partly [x-z] 1500 0.25 explained"}},
		{"a gateway is gone, of which the agents of one cluster cannot know", Reports{Agents: []status.Status{
			agent("a", "x", to("b", "y", down, false), to("b", "z", up, true)),
		}}, []string{"a up, x up", "b unknown, y unknown, z unknown", "a-b partly [x-z] 1500 0.25"}},
		{"a gateway without a link, whose peer has others", Reports{Complete: true, Agents: []status.Status{
			agent("a", "x", to("b", "y", down, false), to("b", "z", up, true)), agent("b", "y", to("a", "x", down, false)), agent("b", "z", to("a", "x", up, true)),
		}}, []string{"a up, x up", "b partly, y down, z up", "a-b partly [x-z] 1500 0.25 explained"}},
		{"a link is down between gateways that answer", Reports{Complete: true, Agents: []status.Status{
			agent("a", "x", to("b", "y", down, true)), agent("b", "y", to("a", "x", down, true)), agent("b", "z"),
		}}, []string{"a up, x up", "b up, y up, z up", "a-b down [] 0 0.00"}},
		{"nothing passes, as one cluster reports", Reports{Agents: []status.Status{
			agent("a", "x", to("b", "y", down, true), to("b", "z", trying, false)),
		}}, []string{"a down, x down", "b unknown, y unknown, z unknown", "a-b down [] 0 0.00 explained"}},
		{"the agent of a gateway is silent, its link works", Reports{Complete: true, Silent: map[string]bool{"b/y": true}, Agents: []status.Status{
			agent("a", "x", to("b", "y", up, true), to("b", "z", up, false)), agent("b", "z", to("a", "x", up, false)),
		}}, []string{"a up, x up", "b partly, y silent, z up", "a-b up [x-y] 1500 0.25"}},
		{"one end hears the other", Reports{Complete: true, Agents: []status.Status{
			agent("a", "x", to("b", "y", up, true)), agent("b", "y", to("a", "x", down, true)),
		}}, []string{"a up, x up", "b partly, y up, z unknown", "a-b partly [x-y] 1500 0.25"}},
		{"not ready", Reports{Agents: []status.Status{unready}}, []string{"a partly, x partly", "b unknown, y unknown, z unknown", "a-b up [x-y] 1500 0.25"}},
		{"workers report no gateways", Reports{Agents: []status.Status{{Cluster: "a", Node: "w"}}},
			[]string{"a unknown, x unknown", "b unknown, y unknown, z unknown", "a-b unknown [] 0 0.00"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := pairOf()
			Fill(m, tt.reports)
			if d := cmp.Diff(tt.want, summaryOf(m)); d != "" {
				t.Errorf("map (-want +have):\n%s", d)
			}
		})
	}
}

// TestLargeMesh: of a mesh that is too large to list, links that are not up come onto the map.
func TestLargeMesh(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard}}
	for i := range clustermap.MaxListed + 1 {
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: fmt.Sprintf("c%03d", i), Gateways: []fabric.Gateway{{Name: "g"}}})
	}
	m := clustermap.New(f)
	Fill(m, Reports{Agents: []status.Status{agent("c001", "g", to("c000", "g", status.Connected, true), to("c002", "g", status.Disconnected, true))}})
	if d := cmp.Diff([]string{"c001-c002 down [] 0 0.00"}, summaryOf(m)[len(f.Clusters):]); d != "" {
		t.Errorf("links (-want +have):\n%s", d)
	}
}
