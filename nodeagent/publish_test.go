package nodeagent

import (
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

func TestRankOfWriters(t *testing.T) {
	t.Parallel()
	own := &fabric.Cluster{Name: "g1", Gateways: []fabric.Gateway{{Name: "a", Node: "n1"}, {Name: "b", Node: "n2"}, {Name: "c", Node: "n3"}}}
	link := func(gateway, state string) health.Link {
		return health.Link{Target: health.Target{Peer: health.Peer{Cluster: "g1", Gateway: gateway}, Device: desired.NodeLink}, State: state}
	}
	tests := []struct {
		name    string
		node    string
		leaving bool
		links   []health.Link
		want    int
	}{
		{"the first", "n1", false, []health.Link{link("b", status.Connected), link("c", status.Connected)}, 0},
		{"the second", "n2", false, []health.Link{link("a", status.Connected), link("c", status.Connected)}, 1},
		{"the last", "n3", false, []health.Link{link("a", status.Connected), link("b", status.Connected)}, 2},
		{"the first is dead", "n3", false, []health.Link{link("a", status.Disconnected), link("b", status.Connected)}, 1},
		{"alone", "n3", false, nil, 0},
		{"the first leaves", "n1", true, []health.Link{link("b", status.Connected), link("c", status.Connected)}, 2},
		{"another cluster's gateway of that name", "n2", false,
			[]health.Link{{Target: health.Target{Peer: health.Peer{Cluster: "g2", Gateway: "a"}}, State: status.Connected}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if have := rankOf(own, tt.node, tt.leaving, health.SnapshotOf(health.Peer{}, tt.links)); have != tt.want {
				t.Errorf("rank %d, want %d", have, tt.want)
			}
		})
	}
}
