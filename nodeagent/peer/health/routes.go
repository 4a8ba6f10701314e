package health

import (
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// ClusterPath is the path of traffic to a cluster. Over has the clusters on it, the next one first and the
// destination last; a neighbour's path has one element.
type ClusterPath struct {
	Hops []string
	Rank Rank // the lowest of its links
	// FormerShape says that the path belongs to the former topology during a change.
	FormerShape bool
}

// LinkRanks has the ranks of the links between clusters.
type LinkRanks struct {
	// Own returns the rank of the link to a neighbour for this cluster's own traffic.
	Own func(neighbour string) Rank
	// Transit returns the rank of a link for transit traffic: Down if an end does not accept it.
	// The order of the arguments does not matter.
	Transit func(a, b string) Rank
}

// ClusterPaths returns the best path to each reachable cluster: the highest rank, then the fewest links,
// then the smallest sum of the links' hashes, which selects the same path in both directions. Paths of
// the former topology count only if the new one has none yet. It is pure.
func ClusterPaths(net projection.Topology, from string, links LinkRanks) map[string]ClusterPath {
	out := map[string]ClusterPath{}
	for _, g := range []*fabric.Graph{net.Now, net.Before} {
		if g == nil {
			continue
		}
		former := g != net.Now
		for rank := Good; rank > Down; rank-- {
			direct(out, g, from, links, ClusterPath{Rank: rank, FormerShape: former})
			addTransit(out, g, from, links, ClusterPath{Rank: rank, FormerShape: former})
		}
	}
	return out
}

// direct adds the paths to neighbours.
func direct(out map[string]ClusterPath, g *fabric.Graph, from string, links LinkRanks, w ClusterPath) {
	for _, to := range g.Neighbors(from) {
		if _, found := out[to]; !found && links.Own(to) >= w.Rank {
			w.Hops = []string{to}
			out[to] = w
		}
	}
}

// addTransit adds the paths through transit clusters.
func addTransit(out map[string]ClusterPath, g *fabric.Graph, from string, links LinkRanks, w ClusterPath) {
	if !passed(g, from, out) {
		return
	}
	routes := g.Paths(from, func(a, b string) bool { return links.Transit(a, b) >= w.Rank })
	for to, names := range routes {
		if _, found := out[to]; !found && len(names) > 1 {
			w.Hops = names
			out[to] = w
		}
	}
}

// passed reports whether transit clusters exist and a cluster has no path yet. Usually the first pass over
// good links finds all paths.
func passed(g *fabric.Graph, from string, found map[string]ClusterPath) bool {
	passes := false
	for _, n := range g.Neighbors(from) {
		passes = passes || g.ForwardsTransit(n)
	}
	return passes && len(found) < g.Len()-1
}
