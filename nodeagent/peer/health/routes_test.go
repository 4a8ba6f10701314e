package health

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

func graphOf(shape fabric.Shape, before *fabric.Shape, clusters ...string) projection.Graph {
	f := &fabric.Fabric{Shape: shape}
	for _, c := range clusters {
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: c})
	}
	return projection.NewGraph(f, before)
}

// ranked has the rank of links by "a b"; other links are Good.
type ranked map[string]Rank

func (r ranked) rank(a, b string) Rank {
	if rank, ok := r[min(a, b)+" "+max(a, b)]; ok {
		return rank
	}
	return Good
}

func (r ranked) links(from string) LinkRanks {
	return LinkRanks{Direct: func(n string) Rank { return r.rank(from, n) }, Transit: r.rank}
}

func routesText(routes map[string]ClusterPath) string {
	var out []string
	for _, to := range slices.Sorted(maps.Keys(routes)) {
		w := routes[to]
		text := strings.Join(w.Hops, ">") + " " + w.Rank.String()
		if w.FormerShape {
			text += " former"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestClusterPaths(t *testing.T) {
	t.Parallel()
	hub := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h", "i"}}
	ring := fabric.Shape{Mode: fabric.ModeExplicit, Edges: [][2]string{{"a", "b"}, {"a", "d"}, {"b", "c"}, {"c", "d"}}}
	one := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}
	mesh := fabric.Shape{}
	tests := []struct {
		name   string
		net    projection.Graph
		from   string
		ranks  ranked
		wanted string
	}{
		{"mesh", graphOf(mesh, nil, "a", "b", "c"), "a", ranked{"a b": Down}, "c good"},
		{"hub", graphOf(one, nil, "a", "b", "h"), "a", nil, "h>b good, h good"},
		{"a hub whose other link is dead", graphOf(hub, nil, "a", "b", "h", "i"), "a", ranked{"b h": Down}, "i>b good, h good, i good"},
		{"a hub that is drained", graphOf(hub, nil, "a", "b", "h", "i"), "a", ranked{"a h": Draining, "b h": Draining},
			"i>b good, i>h good, i good"},
		{"all hubs are drained", graphOf(one, nil, "a", "b", "h"), "a", ranked{"a h": Draining, "b h": Draining},
			"h>b draining, h draining"},
		{"spokes forward no transit", graphOf(hub, nil, "a", "b", "h", "i"), "a", ranked{"a h": Down, "a i": Down}, ""},
		{"a ring, whole", graphOf(ring, nil, "a", "b", "c", "d"), "a", ranked{"a d": Down}, "b good, b>c good, b>c>d good"},
		{"a ring, cut", graphOf(ring, nil, "a", "b", "c", "d"), "a", ranked{"a d": Down, "b c": Down}, "b good"},
		{"hub to mesh, not verified yet", graphOf(mesh, &one, "a", "b", "h"), "a", ranked{"a b": Down}, "h>b good former, h good"},
		{"hub to mesh, verified", graphOf(mesh, &one, "a", "b", "h"), "a", nil, "b good, h good"},
		{"mesh to hub, which does not forward yet", graphOf(one, &mesh, "a", "b", "h"), "a", ranked{"b h": Down}, "b good former, h good"},
		{"mesh to hub", graphOf(one, &mesh, "a", "b", "h"), "a", nil, "h>b good, h good"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if have := routesText(ClusterPaths(tt.net, tt.from, tt.ranks.links(tt.from))); have != tt.wanted {
				t.Errorf("routes: %s, want %s", have, tt.wanted)
			}
		})
	}
}

// TestTransitNeedsBothEnds checks that a link carries transit only once both ends accept it.
func TestTransitNeedsBothEnds(t *testing.T) {
	t.Parallel()
	net := graphOf(fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}, nil, "a", "b", "h")
	links := LinkRanks{Direct: func(string) Rank { return Good }, Transit: func(string, string) Rank { return Down }}
	if have := routesText(ClusterPaths(net, "a", links)); have != "h good" {
		t.Errorf("routes: %s", have)
	}
}

func randomGraph(r *rand.Rand) ([]string, projection.Graph, ranked) {
	var clusters []string
	for i := range 3 + r.IntN(7) {
		clusters = append(clusters, fmt.Sprintf("c%d", i))
	}
	shape := fabric.Shape{Mode: fabric.ModeExplicit}
	if r.IntN(3) == 0 {
		shape = fabric.Shape{Mode: fabric.ModeHub, Hubs: clusters[:1+r.IntN(2)]}
	}
	ranks := ranked{}
	for i, a := range clusters {
		for _, b := range clusters[i+1:] {
			if r.IntN(5) < 2 && shape.Mode == fabric.ModeExplicit {
				shape.Edges = append(shape.Edges, [2]string{a, b})
			}
			if r.IntN(4) == 0 {
				ranks[a+" "+b] = Rank(r.IntN(5))
			}
		}
	}
	return clusters, graphOf(shape, nil, clusters...), ranks
}

// TestPathsAreSymmetric checks that the path is the same in both directions and uses only linked
// clusters, that those between forward transit, and that each cluster on it forwards along the rest
// of it.
func TestPathsAreSymmetric(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 7))
	for range 400 {
		clusters, net, ranks := randomGraph(r)
		routes := map[string]map[string]ClusterPath{}
		for _, from := range clusters {
			routes[from] = ClusterPaths(net, from, ranks.links(from))
		}
		for _, from := range clusters {
			for to, way := range routes[from] {
				back := slices.Concat([]string{from}, way.Hops)
				slices.Reverse(back)
				if other := routes[to][from]; !slices.Equal(other.Hops, back[1:]) || other.Rank != way.Rank {
					t.Fatalf("%s to %s: %v, reverse %v", from, to, way, other)
				}
				for at, hop := from, way.Hops; len(hop) > 0; at, hop = hop[0], hop[1:] {
					if !net.Linked(at, hop[0]) || len(hop) > 1 && !net.ForwardsTransit(hop[0]) || ranks.rank(at, hop[0]) < way.Rank {
						t.Fatalf("%s to %s: %v goes from %s to %s", from, to, way, at, hop[0])
					}
				}
			}
		}
	}
}

// TestPathsMoveOnlyIfNeeded checks that a dead link moves only paths that use it.
func TestPathsMoveOnlyIfNeeded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(4, 8))
	for range 400 {
		clusters, net, ranks := randomGraph(r)
		a, b := clusters[r.IntN(len(clusters))], clusters[r.IntN(len(clusters))]
		for _, from := range clusters {
			before := ClusterPaths(net, from, ranks.links(from))
			dead := maps.Clone(ranks)
			dead[min(a, b)+" "+max(a, b)] = Down
			after := ClusterPaths(net, from, dead.links(from))
			for to, way := range before {
				over := slices.Concat([]string{from}, way.Hops)
				uses := slices.ContainsFunc(over, func(c string) bool {
					i := slices.Index(over, c)
					return i > 0 && (over[i-1] == a && c == b || over[i-1] == b && c == a)
				})
				if !uses && !slices.Equal(after[to].Hops, way.Hops) {
					t.Fatalf("%s to %s moved from %v to %v as %s-%s died", from, to, way, after[to], a, b)
				}
			}
		}
	}
}

func TestTableOfShape(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Shape: fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}}
	for _, name := range []string{"a", "b", "h"} {
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: name, Gateways: []fabric.Gateway{{Name: "1"}}})
	}
	table := NewPreferences(f, nil)
	if _, ok := table.First("a", "b"); ok {
		t.Error("spokes have a link")
	}
	if _, ok := table.First("a", "h"); !ok {
		t.Error("spoke and hub have none")
	}
	mesh := fabric.Shape{}
	if table.Same(f, &mesh) || !table.Same(f, nil) {
		t.Error("the former shape is ignored")
	}
	if _, ok := NewPreferences(f, &mesh).First("a", "b"); !ok {
		t.Error("a link of the former shape is missing")
	}
	f.Shape = mesh
	if table.Same(f, nil) {
		t.Error("the shape is ignored")
	}
}
