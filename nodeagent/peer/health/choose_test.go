package health

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

func TestPick(t *testing.T) {
	t.Parallel()
	order := []model.Path{{Local: "1"}, {Local: "2"}, {Local: "3"}}
	tests := []struct {
		name  string
		ranks []Rank
		want  string
		rank  Rank
	}{
		{"the first of the best", []Rank{Draining, Good, Good}, "2", Good},
		{"the first of all", []Rank{Good, Good, Good}, "1", Good},
		{"nothing is good", []Rank{Down, Draining, Unsteady}, "3", Unsteady},
		{"isolated is better than down", []Rank{Down, Isolated, Down}, "2", Isolated},
		{"all are down", []Rank{Down, Down, Down}, "1", Down},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, rank, ok := Pick(order, func(p model.Path) Rank { return tt.ranks[p.Local[0]-'1'] })
			if !ok || p.Local != tt.want || rank != tt.rank {
				t.Errorf("got %v %v %v, want %s %v", p, rank, ok, tt.want, tt.rank)
			}
		})
	}
	if _, _, ok := Pick(nil, nil); ok {
		t.Error("picked from an empty order")
	}
}

// snapshotOf returns the snapshot of gateway a1 of cluster a with these own links.
func snapshotOf(self GatewayID, links map[GatewayID]Rank) Snapshot {
	var out []Link
	for peer, rank := range links {
		out = append(out, Link{Target: Target{Peer: peer}, Rank: rank})
	}
	return NewSnapshot(self, out)
}

func TestPathsAndTransit(t *testing.T) {
	t.Parallel()
	table := NewPreferences(&fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "a", Gateways: []fabric.Gateway{{Name: "a1"}, {Name: "a2"}}},
		{Name: "b", Gateways: []fabric.Gateway{{Name: "b1"}, {Name: "b2"}}},
		{Name: "c"},
	}}, nil)
	order := table.Order("a", "b")
	ofA1 := order[slices.IndexFunc(order, func(p model.Path) bool { return p.Local == "a1" })]
	self := GatewayID{"a", "a1"}
	tests := []struct {
		name    string
		links   map[GatewayID]Rank
		want    ActiveLink
		transit model.Path
	}{
		{"one is good", map[GatewayID]Rank{{"b", "b2"}: Good, {"b", "b1"}: Unsteady},
			ActiveLink{Path: model.Path{Local: "a1", Remote: "b2"}, Rank: Good, Reason: "best of the live links"},
			model.Path{Local: "a1", Remote: "b2"}},
		{"one remains", map[GatewayID]Rank{{"b", "b1"}: Draining},
			ActiveLink{Path: model.Path{Local: "a1", Remote: "b1"}, Rank: Draining, Reason: "best of the live links"},
			model.Path{Local: "a1", Remote: "b1"}},
		{"none", map[GatewayID]Rank{{"b", "b1"}: Down},
			ActiveLink{Path: model.Path{Local: order[0].Local, Remote: order[0].Remote, Down: true}, Reason: "all links down"},
			model.Path{Local: "a1", Remote: ofA1.Remote, Down: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(self, tt.links)
			// The first choice is Good when it is one of a1's and both are.
			if have := ChooseLinks(table, "a", s); len(have) != 1 || have["b"].Path != tt.want.Path || have["b"].Rank != tt.want.Rank {
				t.Errorf("got %v, want %v", have, tt.want)
			}
			if have := GatewayLinks(table, "a", "a1", s); have["b"] != tt.transit {
				t.Errorf("transit is %v, want %v", have, tt.transit)
			}
		})
	}
	if ChooseLinks(table, "x", Snapshot{}) != nil || len(GatewayLinks(table, "x", "a1", Snapshot{})) != 0 {
		t.Error("a cluster that is not in the fabric has paths")
	}
}

// TestGatewayLinksFollowTheOrder compares random links with those by the full order of each pair.
func TestGatewayLinksFollowTheOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := randomFabric(r, 2+r.IntN(8), func() int { return 1 + r.IntN(3) })
		table := NewPreferences(f, nil)
		own := f.Clusters[r.IntN(len(f.Clusters))]
		gateway := own.Gateways[r.IntN(len(own.Gateways))].Name
		var links []Link
		for _, c := range f.Clusters {
			for _, g := range c.Gateways {
				if c.Name != own.Name && r.IntN(8) > 0 {
					links = append(links, Link{Target: Target{Peer: GatewayID{c.Name, g.Name}}, Rank: Rank(r.IntN(int(Good) + 1)), peerUses: r.IntN(2) == 0})
				}
			}
		}
		s := NewSnapshot(GatewayID{own.Name, gateway}, links)
		want := map[string]model.Path{}
		for _, c := range f.Clusters {
			order := slices.DeleteFunc(table.Order(own.Name, c.Name), func(p model.Path) bool { return p.Local != gateway })
			if pair := (clusterPair{snapshot: &s, local: own.Name, remote: c.Name}); len(order) > 0 {
				want[c.Name] = pair.choose(order).Path
			}
		}
		if have := GatewayLinks(table, own.Name, gateway, s); !maps.Equal(have, want) {
			t.Errorf("seed %d: links of %s/%s are %v, want %v", seed, own.Name, gateway, have, want)
		}
	}
}

func BenchmarkPaths(b *testing.B) {
	f := &fabric.Fabric{}
	for i := range 1000 {
		f.Clusters = append(f.Clusters, clusterOf(fmt.Sprintf("c%03d", i), 3))
	}
	table := NewPreferences(f, nil)
	links := map[GatewayID]Rank{}
	for _, c := range f.Clusters {
		for _, g := range c.Gateways {
			links[GatewayID{c.Name, g.Name}] = Good
		}
	}
	s := snapshotOf(GatewayID{"c500", "c500-gw0"}, links)
	for b.Loop() {
		if len(ChooseLinks(table, "c500", s)) != 999 {
			b.Fatal("paths are missing")
		}
	}
}
