package fabric

import (
	"slices"

	"hawser.dev/hawser/internal/stablehash"
)

// Modes of a shape.
const (
	ModeMesh     = "mesh"  // every cluster is linked to every other; no transit
	ModeHub      = "hub"   // every cluster is linked to each hub; hubs forward transit traffic
	ModeExplicit = "links" // the listed pairs are linked; every cluster forwards transit traffic
)

// Shape defines which clusters are linked, and which forward transit traffic. The
// zero value is a mesh.
type Shape struct {
	Mode  string      `json:"mode,omitempty"`  // empty is mesh
	Hubs  []string    `json:"hubs,omitempty"`  // ModeHub: sorted
	Edges [][2]string `json:"edges,omitempty"` // ModeExplicit: each sorted, and the list sorted
	// Partial is set if clusters without a path to each other are intended.
	Partial bool `json:"partial,omitempty"`
}

// Graph holds the clusters of a shape and the links between them. It is safe for
// concurrent use.
type Graph struct {
	shape    Shape
	names    []string // sorted
	hubs     []bool   // by index in names; ModeHub only
	hubCount int
	edges    [][]int // by index in names, sorted; ModeExplicit only
}

// NewGraph returns the graph of a shape and clusters. It ignores other clusters that the
// shape names.
func NewGraph(shape Shape, clusters []string) *Graph {
	g := &Graph{shape: shape, names: slices.Clone(clusters)}
	slices.Sort(g.names)
	g.names = slices.Compact(g.names)
	if shape.Mode == ModeHub {
		g.hubs = make([]bool, len(g.names))
		for _, name := range shape.Hubs {
			if i := g.indexOf(name); i >= 0 && !g.hubs[i] {
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
		a, b := g.indexOf(e[0]), g.indexOf(e[1])
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

// Graph returns the graph of the fabric's clusters and links.
func (f *Fabric) Graph() *Graph { return NewGraph(f.Shape, f.ClusterNames()) }

// ClusterNames returns the names of the clusters, in the order of the fabric.
func (f *Fabric) ClusterNames() []string {
	names := make([]string, len(f.Clusters))
	for i := range names {
		names[i] = f.Clusters[i].Name
	}
	return names
}

// indexOf returns the index of a cluster, or -1.
func (g *Graph) indexOf(name string) int {
	i, ok := slices.BinarySearch(g.names, name)
	if !ok {
		return -1
	}
	return i
}

// Len returns the number of clusters.
func (g *Graph) Len() int { return len(g.names) }

// Linked reports whether two clusters have a direct link.
func (g *Graph) Linked(a, b string) bool {
	i, j := g.indexOf(a), g.indexOf(b)
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

// ForwardsTransit reports whether a cluster forwards transit traffic.
func (g *Graph) ForwardsTransit(cluster string) bool {
	i := g.indexOf(cluster)
	return i >= 0 && g.forwardsTransit(i)
}

func (g *Graph) forwardsTransit(i int) bool {
	return g.shape.Mode == ModeExplicit || g.shape.Mode == ModeHub && g.hubs[i]
}

// Neighbors returns the clusters with a link to cluster, sorted.
func (g *Graph) Neighbors(cluster string) []string {
	i := g.indexOf(cluster)
	if i < 0 {
		return nil
	}
	neighbors := g.neighbors(i)
	out := make([]string, len(neighbors))
	for k, j := range neighbors {
		out[k] = g.names[j]
	}
	return out
}

// Degree returns the number of a cluster's links.
func (g *Graph) Degree(cluster string) int {
	i := g.indexOf(cluster)
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

// neighbors returns the clusters with a link to a cluster, all by index in names.
func (g *Graph) neighbors(i int) []int {
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

// pathState is the best path to a cluster so far.
type pathState struct {
	hops     int
	sum      uint64 // sum of the hashes of its links
	previous int    // the cluster before the last hop
}

// Paths returns the shortest path to every reachable cluster, as the list of its clusters from the
// next hop to the destination. A path uses links that are alive (all if alive is nil) and clusters
// that forward transit traffic. Of paths with the same number of links, the smallest sum of
// LinkHash wins, so that the reverse path is the same. alive must not depend on the order of its
// arguments.
func (g *Graph) Paths(from string, alive func(a, b string) bool) map[string][]string {
	start := g.indexOf(from)
	if start < 0 {
		return nil
	}
	best := map[int]pathState{start: {}}
	for layer := []int{start}; len(layer) > 0; {
		layer = g.nextLayer(best, layer, start, alive)
	}
	out := make(map[string][]string, len(best)-1)
	for to, state := range best {
		if to == start {
			continue
		}
		names := make([]string, state.hops)
		for i := state.hops - 1; i >= 0; i-- {
			names[i] = g.names[to]
			to = best[to].previous
		}
		out[names[len(names)-1]] = names
	}
	return out
}

// nextLayer returns the clusters one link beyond a layer, and adds their paths to best.
func (g *Graph) nextLayer(best map[int]pathState, layer []int, start int, alive func(a, b string) bool) []int {
	var next []int
	for _, i := range layer {
		if i != start && !g.forwardsTransit(i) {
			continue
		}
		for _, j := range g.neighbors(i) {
			if alive != nil && !alive(g.names[i], g.names[j]) {
				continue
			}
			path := pathState{hops: best[i].hops + 1, sum: best[i].sum + LinkHash(g.names[i], g.names[j]), previous: i}
			current, found := best[j]
			if !found {
				next = append(next, j)
			}
			if !found || current.hops == path.hops && path.sum < current.sum {
				best[j] = path
			}
		}
	}
	slices.Sort(next)
	return next
}

// LinkHash returns the hash of the link between two clusters. It is below 2^48, so that
// the hashes of a path can be added.
func LinkHash(a, b string) uint64 {
	return stablehash.Mix64(stablehash.Sum64(min(a, b)+" "+max(a, b))) >> 16
}

// Components groups the clusters that have a path to each other while all links are up.
// Each group is sorted, and the groups are sorted by their first cluster.
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
