package health

import (
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// ClusterPath is the path of traffic to a cluster. Hops has the clusters on the path, from the next
// hop to the destination. The path to a neighbour has one hop.
type ClusterPath struct {
	Hops []string
	Rank Rank // the lowest of its links
	// FormerShape reports that the path belongs to the previous topology during a change.
	FormerShape bool
}

// LinkRanks has the ranks of the links between clusters.
type LinkRanks struct {
	// Direct returns the rank of the link to a neighbour for this cluster's own traffic.
	Direct func(neighbour string) Rank
	// Transit returns the rank of a link for transit traffic: Down if an end does not accept
	// it. The order of the arguments does not matter.
	Transit func(a, b string) Rank
}

// ClusterPaths returns the best path to each reachable cluster: the highest rank, then the fewest
// links, then the smallest sum of the links' hashes. The sum selects the same path in both
// directions. A path of the previous topology is used only if the new topology has no path yet. It
// is pure.
func ClusterPaths(graph projection.Graph, from string, links LinkRanks) map[string]ClusterPath {
	out := map[string]ClusterPath{}
	for _, g := range []*fabric.Graph{graph.Now, graph.Before} {
		if g == nil {
			continue
		}
		formerShape := g != graph.Now
		for rank := Good; rank > Down; rank-- {
			path := ClusterPath{Rank: rank, FormerShape: formerShape}
			addDirect(out, g, from, links, path)
			addTransit(out, g, from, links, path)
		}
	}
	return out
}

// addDirect adds the paths to neighbours.
func addDirect(out map[string]ClusterPath, g *fabric.Graph, from string, links LinkRanks, path ClusterPath) {
	for _, to := range g.Neighbors(from) {
		if _, found := out[to]; !found && links.Direct(to) >= path.Rank {
			path.Hops = []string{to}
			out[to] = path
		}
	}
}

// addTransit adds the paths through transit clusters.
func addTransit(out map[string]ClusterPath, g *fabric.Graph, from string, links LinkRanks, path ClusterPath) {
	if !needsTransit(g, from, out) {
		return
	}
	routes := g.Paths(from, func(a, b string) bool { return links.Transit(a, b) >= path.Rank })
	for to, names := range routes {
		if _, found := out[to]; !found && len(names) > 1 {
			path.Hops = names
			out[to] = path
		}
	}
}

// needsTransit reports whether transit clusters exist and a cluster has no path yet. Usually the
// first pass over good links finds all paths.
func needsTransit(g *fabric.Graph, from string, found map[string]ClusterPath) bool {
	hasTransit := false
	for _, n := range g.Neighbors(from) {
		hasTransit = hasTransit || g.ForwardsTransit(n)
	}
	return hasTransit && len(found) < g.Len()-1
}
