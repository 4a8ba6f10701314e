package fabric

import (
	"slices"

	"hawser.dev/hawser/internal/stablehash"
)

// Modes of a shape.
const (
	ModeMesh     = "mesh"  // every cluster is linked to every other; nobody passes on
	ModeHub      = "hub"   // every cluster is linked to each hub; hubs pass on
	ModeExplicit = "links" // the listed pairs are linked; every cluster passes on
)

// Shape says which clusters have a link, and which pass on what others send to
// each other. The zero value is a mesh.
type Shape struct {
	Mode  string      `json:"mode,omitempty"`  // empty: mesh
	Hubs  []string    `json:"hubs,omitempty"`  // ModeHub: sorted
	Edges [][2]string `json:"edges,omitempty"` // ModeLinks: each sorted, and the list sorted
	// Partial says that clusters without a path to each other are meant so.
	Partial bool `json:"partial,omitempty"`
}

// Graph is the clusters of a shape and the links between them. It is safe for
// concurrent use.
type Graph struct {
	shape    Shape
	names    []string // sorted
	hubs     []bool   // by index in names; ModeHub only
	hubCount int
	edges    [][]int // by index in names, sorted; ModeLinks only
}

// NewGraph joins clusters as a shape says. What the shape names besides is left out.
func NewGraph(shape Shape, clusters []string) *Graph {
	g := &Graph{shape: shape, names: slices.Clone(clusters)}
	slices.Sort(g.names)
	g.names = slices.Compact(g.names)
	if shape.Mode == ModeHub {
		g.hubs = make([]bool, len(g.names))
		for _, name := range shape.Hubs {
			if i := g.at(name); i >= 0 && !g.hubs[i] {
				g.hubs[i] = true
				g.hubCount++
			}
		}
	}
	if shape.Mode != ModeExplicit {
		return g
	}
	g.edges = make([][]int, len(g.names))
	for _, e := range shape.Edges {
		a, b := g.at(e[0]), g.at(e[1])
		if a >= 0 && b >= 0 && a != b {
			g.edges[a], g.edges[b] = append(g.edges[a], b), append(g.edges[b], a)
		}
	}
	for i := range g.edges {
		slices.Sort(g.edges[i])
		g.edges[i] = slices.Compact(g.edges[i])
	}
	return g
}

// Graph gives the clusters of the fabric in its shape.
func (f *Fabric) Graph() *Graph { return NewGraph(f.Shape, f.ClusterNames()) }

// ClusterNames gives the names of the clusters, in the order of the fabric.
func (f *Fabric) ClusterNames() []string {
	names := make([]string, len(f.Clusters))
	for i := range names {
		names[i] = f.Clusters[i].Name
	}
	return names
}

// at gives the index of a cluster, or -1.
func (g *Graph) at(name string) int {
	i, ok := slices.BinarySearch(g.names, name)
	if !ok {
		return -1
	}
	return i
}

// Len is the number of clusters.
func (g *Graph) Len() int { return len(g.names) }

// Linked reports whether two clusters have a link of their own.
func (g *Graph) Linked(a, b string) bool {
	i, j := g.at(a), g.at(b)
	return i >= 0 && j >= 0 && g.linked(i, j)
}

func (g *Graph) linked(i, j int) bool {
	switch {
	case i == j:
		return false
	case g.shape.Mode == ModeHub:
		return g.hubs[i] || g.hubs[j]
	case g.shape.Mode == ModeExplicit:
		_, ok := slices.BinarySearch(g.edges[i], j)
		return ok
	}
	return true
}

// ForwardsTransit reports whether a cluster passes on what others send to each other.
func (g *Graph) ForwardsTransit(cluster string) bool {
	i := g.at(cluster)
	return i >= 0 && g.passes(i)
}

func (g *Graph) passes(i int) bool {
	return g.shape.Mode == ModeExplicit || g.shape.Mode == ModeHub && g.hubs[i]
}

// Neighbors gives the clusters to which one has a link, sorted.
func (g *Graph) Neighbors(cluster string) []string {
	i := g.at(cluster)
	if i < 0 {
		return nil
	}
	near := g.near(i)
	out := make([]string, len(near))
	for k, j := range near {
		out[k] = g.names[j]
	}
	return out
}

// Degree is how many links a cluster has.
func (g *Graph) Degree(cluster string) int {
	i := g.at(cluster)
	switch {
	case i < 0:
		return 0
	case g.shape.Mode == ModeExplicit:
		return len(g.edges[i])
	case g.shape.Mode == ModeHub && !g.hubs[i]:
		return g.hubCount
	}
	return len(g.names) - 1
}

func (g *Graph) near(i int) []int {
	if g.shape.Mode == ModeExplicit {
		return g.edges[i]
	}
	out := make([]int, 0, len(g.names))
	for j := range g.names {
		if g.linked(i, j) {
			out = append(out, j)
		}
	}
	return out
}

// way is the best known way to a cluster.
type way struct {
	hops int
	sum  uint64 // of the hashes of its links
	last int    // the cluster before it
}

// Paths gives for every cluster that can be reached the clusters on the way
// there, the next one first and the cluster itself last: over links that are
// alive (nil: all are), through clusters that pass on, with as few links as can
// be. Of ways with equally many links it is the one with the least sum of the
// links' hashes, so that the way back is the same one. alive must not depend on
// the order of its arguments.
func (g *Graph) Paths(from string, alive func(a, b string) bool) map[string][]string {
	start := g.at(from)
	if start < 0 {
		return nil
	}
	best := map[int]way{start: {}}
	for layer := []int{start}; len(layer) > 0; {
		layer = g.widen(best, layer, start, alive)
	}
	out := make(map[string][]string, len(best)-1)
	for to, w := range best {
		if to == start {
			continue
		}
		names := make([]string, w.hops)
		for i := w.hops - 1; i >= 0; i-- {
			names[i] = g.names[to]
			to = best[to].last
		}
		out[names[len(names)-1]] = names
	}
	return out
}

// widen finds the clusters one link behind a layer.
func (g *Graph) widen(best map[int]way, layer []int, start int, alive func(a, b string) bool) []int {
	var next []int
	for _, i := range layer {
		if i != start && !g.passes(i) {
			continue
		}
		for _, j := range g.near(i) {
			if alive != nil && !alive(g.names[i], g.names[j]) {
				continue
			}
			w := way{hops: best[i].hops + 1, sum: best[i].sum + LinkHash(g.names[i], g.names[j]), last: i}
			have, found := best[j]
			if !found {
				next = append(next, j)
			}
			if !found || have.hops == w.hops && w.sum < have.sum {
				best[j] = w
			}
		}
	}
	slices.Sort(next)
	return next
}

// LinkHash is the hash of the link between two clusters, below 2^48 so that
// those of a way can be added up.
func LinkHash(a, b string) uint64 {
	return stablehash.Mix64(stablehash.Sum64(min(a, b)+" "+max(a, b))) >> 16
}

// Components parts the clusters into those that have a way to each other when all
// links are alive; in order, and the groups in the order of their first.
func (g *Graph) Components() [][]string {
	var out [][]string
	grouped := map[string]bool{}
	for _, name := range g.names {
		if grouped[name] {
			continue
		}
		group := []string{name}
		for to := range g.Paths(name, nil) {
			group = append(group, to)
		}
		for _, member := range group {
			grouped[member] = true
		}
		slices.Sort(group)
		out = append(out, group)
	}
	return out
}
