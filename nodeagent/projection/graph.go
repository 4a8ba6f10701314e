package projection

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/fabric"
)

// Graph has the links between clusters and the clusters that forward transit traffic. While
// clusters change from a former shape, it has the links of both shapes.
type Graph struct {
	Now    *fabric.Graph
	Before *fabric.Graph // of the former shape; nil = no change
	shapes []fabric.Shape
}

// NewGraph returns the graph of a fabric. before is the former shape; nil = no change.
func NewGraph(f *fabric.Fabric, before *fabric.Shape) Graph {
	n := Graph{Now: f.Graph(), shapes: []fabric.Shape{f.Shape}}
	if before == nil {
		return n
	}
	n.Before = fabric.NewGraph(*before, f.ClusterNames())
	n.shapes = append(n.shapes, *before)
	return n
}

// Mesh reports whether no cluster forwards transit traffic.
func (n Graph) Mesh() bool {
	return !slices.ContainsFunc(n.shapes, func(s fabric.Shape) bool { return !IsMesh(s) })
}

// IsMesh reports whether a shape links all clusters directly.
func IsMesh(s fabric.Shape) bool { return s.Mode == "" || s.Mode == fabric.ModeMesh }

// Same reports whether NewGraph would return the same graph for clusters with the same names.
func (n Graph) Same(f *fabric.Fabric, before *fabric.Shape) bool {
	if len(n.shapes) == 0 || !SameShape(n.shapes[0], f.Shape) || (before != nil) != (n.Before != nil) {
		return false
	}
	return before == nil || SameShape(n.shapes[1], *before)
}

// SameShape reports whether two shapes are equal.
func SameShape(a, b fabric.Shape) bool {
	if IsMesh(a) || IsMesh(b) {
		return IsMesh(a) == IsMesh(b)
	}
	return a.Mode == b.Mode && slices.Equal(a.Hubs, b.Hubs) && slices.Equal(a.Edges, b.Edges)
}

// Linked reports whether two clusters have a link of their own.
func (n Graph) Linked(a, b string) bool {
	return n.Now.Linked(a, b) || n.Before != nil && n.Before.Linked(a, b)
}

// ForwardsTransit reports whether a cluster forwards transit traffic.
func (n Graph) ForwardsTransit(cluster string) bool {
	return n.Now.ForwardsTransit(cluster) || n.Before != nil && n.Before.ForwardsTransit(cluster)
}

// Neighbors returns the clusters to which a cluster has a link, sorted.
func (n Graph) Neighbors(cluster string) []string {
	out := n.Now.Neighbors(cluster)
	if n.Before == nil {
		return out
	}
	out = append(out, n.Before.Neighbors(cluster)...)
	slices.Sort(out)
	return slices.Compact(out)
}

// ShapeDigest returns a digest of a shape. Clusters announce the digest of the shape that they use.
func ShapeDigest(s fabric.Shape) string {
	if IsMesh(s) {
		s = fabric.Shape{}
	}
	s.Partial = false // as in SameShape: it changes no link
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode shape %+v: %v", s, err)) // strings and booleans always encode
	}
	return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, stablehash.Mix64(stablehash.Sum64(string(raw)))))
}

// reachableFrom returns from and the clusters that it reaches without the cluster named without.
// Paths use links of either shape and clusters that forward transit traffic.
func (n Graph) reachableFrom(from, without string) map[string]bool {
	seen := map[string]bool{from: true}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		if todo[0] != from && !n.ForwardsTransit(todo[0]) {
			continue
		}
		for _, next := range n.Neighbors(todo[0]) {
			if next != without && !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return seen
}

// Between returns the clusters that may forward packets between two clusters over links of either
// shape, sorted.
func (n Graph) Between(a, b string) []string {
	if n.Mesh() {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(n.reachableFrom(a, b))) {
		if name != a && n.ForwardsTransit(name) && n.reachableFrom(name, a)[b] {
			out = append(out, name)
		}
	}
	return out
}

// Sources returns the clusters whose packets may arrive over the link with a neighbour: the
// neighbour and, if it forwards transit traffic, all clusters that it reaches without passing
// cluster.
func (n Graph) Sources(cluster, neighbour string) map[string]bool {
	if !n.ForwardsTransit(neighbour) {
		return map[string]bool{neighbour: true}
	}
	return n.reachableFrom(neighbour, cluster)
}

// OnlyVia returns the clusters that a cluster reaches only over the link with a neighbour. Packets
// from that link are not forwarded to them.
func (n Graph) OnlyVia(cluster, neighbour string) map[string]bool {
	if !n.ForwardsTransit(neighbour) {
		return map[string]bool{neighbour: true}
	}
	out := n.reachableFrom(neighbour, cluster)
	for there := range n.reachableFrom(cluster, neighbour) {
		delete(out, there)
	}
	return out
}
