package fabric

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShapes(t *testing.T) {
	t.Parallel()
	clusters := []string{"a", "b", "c", "d", "e"}
	chain := [][2]string{{"a", "b"}, {"b", "c"}, {"c", "d"}}
	tests := []struct {
		name   string
		shape  Shape
		near   string // of b
		path   string // from a to d
		groups string
	}{
		{"zero value", Shape{}, "[a c d e]", "[d]", "[[a b c d e]]"},
		{"mesh", Shape{Mode: ModeMesh}, "[a c d e]", "[d]", "[[a b c d e]]"},
		{"hub", Shape{Mode: ModeHub, Hubs: []string{"b"}}, "[a c d e]", "[b d]", "[[a b c d e]]"},
		{"hub at the end", Shape{Mode: ModeHub, Hubs: []string{"d"}}, "[d]", "[d]", "[[a b c d e]]"},
		{"two hubs", Shape{Mode: ModeHub, Hubs: []string{"b", "e"}}, "[a c d e]", "[b d]", "[[a b c d e]]"},
		{"unknown hub", Shape{Mode: ModeHub, Hubs: []string{"x"}}, "[]", "[]", "[[a] [b] [c] [d] [e]]"},
		{"chain", Shape{Mode: ModeExplicit, Edges: chain}, "[a c]", "[b c d]", "[[a b c d] [e]]"},
		{"ring", Shape{Mode: ModeExplicit, Edges: append(slices.Clone(chain), [2]string{"d", "e"}, [2]string{"a", "e"})}, "[a c]", "[e d]", "[[a b c d e]]"},
		{"unknown, doubled and own ends", Shape{Mode: ModeExplicit, Edges: [][2]string{{"a", "b"}, {"b", "a"}, {"b", "b"}, {"b", "x"}}}, "[a]", "[]", "[[a b] [c] [d] [e]]"},
		{"no links", Shape{Mode: ModeExplicit}, "[]", "[]", "[[a] [b] [c] [d] [e]]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := NewGraph(tt.shape, clusters)
			if have := fmt.Sprint(g.Neighbors("b")); have != tt.near {
				t.Errorf("neighbours of b: want %s, have %s", tt.near, have)
			}
			for _, name := range append(clusters, "x") {
				if near := g.Neighbors(name); g.Degree(name) != len(near) {
					t.Errorf("degree of %s: have %d, neighbours %v", name, g.Degree(name), near)
				}
			}
			if have := fmt.Sprint(g.Paths("a", nil)["d"]); have != tt.path {
				t.Errorf("path from a to d: want %s, have %s", tt.path, have)
			}
			if have := fmt.Sprint(g.Components()); have != tt.groups {
				t.Errorf("groups: want %s, have %s", tt.groups, have)
			}
		})
	}
}

// TestSpokesForwardNoTransit checks that no path leads through a spoke if the link of a hub is
// down.
func TestSpokesForwardNoTransit(t *testing.T) {
	t.Parallel()
	g := NewGraph(Shape{Mode: ModeHub, Hubs: []string{"h1", "h2"}}, []string{"a", "b", "h1", "h2"})
	dead := func(x, y string) func(a, b string) bool {
		return func(a, b string) bool { return SortedPair(a, b) != SortedPair(x, y) }
	}
	if path := g.Paths("h1", dead("h1", "h2"))["h2"]; path != nil {
		t.Errorf("between hubs: have %v", path)
	}
	only := func(a, b string) bool {
		p := SortedPair(a, b)
		return p != SortedPair("a", "h2") && p != SortedPair("b", "h1")
	}
	if d := cmp.Diff([]string{"h1", "h2", "b"}, g.Paths("a", only)["b"]); d != "" {
		t.Errorf("over both hubs (-want +have)\n%s", d)
	}
	for name, want := range map[string]bool{"a": false, "h1": true, "x": false} {
		if g.ForwardsTransit(name) != want {
			t.Errorf("%s forwards transit: want %v", name, want)
		}
	}
	if g.Paths("x", nil) != nil || g.Linked("a", "x") || g.Linked("a", "a") || g.Neighbors("x") != nil {
		t.Error("an unknown cluster has links")
	}
}

// TestPathInvariants checks paths on random graphs with dead links. A path is shortest, and equal
// in reverse. It uses only live links and clusters that forward transit. It does not depend on the
// order of clusters and links.
func TestPathInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		clusters, shape := randomShape(r)
		dead := map[[2]string]bool{}
		for range r.IntN(6) {
			dead[SortedPair(clusters[r.IntN(len(clusters))], clusters[r.IntN(len(clusters))])] = true
		}
		alive := func(a, b string) bool { return !dead[SortedPair(a, b)] }
		g := NewGraph(shape, clusters)
		mixed := shuffled(r, shape, clusters)
		for _, from := range clusters {
			paths := g.Paths(from, alive)
			if d := cmp.Diff(paths, mixed.Paths(from, alive)); d != "" {
				t.Fatalf("seed %d: order matters\n%s", seed, d)
			}
			hops := distances(g, from, alive)
			for _, to := range clusters {
				checkPath(t, g, alive, from, to, paths[to], hops)
				back := slices.Clone(g.Paths(to, alive)[from])
				slices.Reverse(back)
				if len(back) > 0 && !slices.Equal(append(back[1:], to), paths[to]) {
					t.Fatalf("seed %d: %s to %s over %v, back over %v reversed", seed, from, to, paths[to], back)
				}
			}
		}
	}
}

func randomShape(r *rand.Rand) ([]string, Shape) {
	clusters := make([]string, 2+r.IntN(9))
	for i := range clusters {
		clusters[i] = fmt.Sprintf("c%d", i)
	}
	pick := func() string { return clusters[r.IntN(len(clusters))] }
	switch r.IntN(3) {
	case 0:
		return clusters, Shape{}
	case 1:
		return clusters, Shape{Mode: ModeHub, Hubs: []string{pick(), pick()}}
	}
	s := Shape{Mode: ModeExplicit}
	for range r.IntN(3 * len(clusters)) {
		s.Edges = append(s.Edges, [2]string{pick(), pick()})
	}
	return clusters, s
}

// shuffled returns the graph of the same shape with other orders of clusters and links.
func shuffled(r *rand.Rand, s Shape, clusters []string) *Graph {
	s.Hubs, s.Edges, clusters = slices.Clone(s.Hubs), slices.Clone(s.Edges), slices.Clone(clusters)
	r.Shuffle(len(s.Hubs), func(i, j int) { s.Hubs[i], s.Hubs[j] = s.Hubs[j], s.Hubs[i] })
	r.Shuffle(len(s.Edges), func(i, j int) { s.Edges[i], s.Edges[j] = s.Edges[j], s.Edges[i] })
	r.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
	for i := range s.Edges {
		s.Edges[i][0], s.Edges[i][1] = s.Edges[i][1], s.Edges[i][0]
	}
	return NewGraph(s, clusters)
}

// distances returns the distance of each cluster from a cluster. It relaxes every link until no
// distance changes.
func distances(g *Graph, from string, alive func(a, b string) bool) map[string]int {
	out := map[string]int{from: 0}
	for changed := true; changed; {
		changed = false
		for a, hops := range out {
			if a != from && !g.ForwardsTransit(a) {
				continue
			}
			for _, b := range g.Neighbors(a) {
				if have, ok := out[b]; alive(a, b) && (!ok || have > hops+1) {
					out[b], changed = hops+1, true
				}
			}
		}
	}
	return out
}

func checkPath(t *testing.T, g *Graph, alive func(a, b string) bool, from, to string, path []string, hops map[string]int) {
	t.Helper()
	want, reached := hops[to]
	if from == to || !reached {
		if path != nil {
			t.Fatalf("%s to %s: want no path, have %v", from, to, path)
		}
		return
	}
	if len(path) != want || path[len(path)-1] != to {
		t.Fatalf("%s to %s: want %d links, have %v", from, to, want, path)
	}
	at := from
	for i, next := range path {
		if !g.Linked(at, next) || !g.Linked(next, at) || !alive(at, next) || i > 0 && !g.ForwardsTransit(at) {
			t.Fatalf("%s to %s over %v: no usable link from %s to %s", from, to, path, at, next)
		}
		at = next
	}
}
