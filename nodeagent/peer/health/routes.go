package health

import (
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// ClusterPath is how the traffic to a cluster goes: over the clusters in Over, the next
// one first and the cluster itself last. One that it names alone is a neighbour.
type ClusterPath struct {
	Hops []string
	Rank Rank // the lowest of its links
	// FormerShape says that the route is one of the shape that the clusters leave.
	FormerShape bool
}

// LinkRanks is what is known of the links between clusters.
type LinkRanks struct {
	// Own ranks the link to a neighbour, for this cluster's own traffic.
	Own func(neighbour string) Rank
	// Transit ranks the link of any two clusters for what is passed on: it is Down
	// while an end does not take that. The order of the arguments does not matter.
	Transit func(a, b string) Rank
}

// ClusterPaths gives the best route to each cluster that can be reached: the one with the
// highest rank, of those the shortest, and of those the one with the least sum of
// the links' hashes, which is the same one in both directions. Routes of the shape
// that the clusters leave count only where the new one has none yet. It depends on
// its arguments alone.
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

// direct adds the neighbours that need nobody else.
func direct(out map[string]ClusterPath, g *fabric.Graph, from string, links LinkRanks, w ClusterPath) {
	for _, to := range g.Neighbors(from) {
		if _, found := out[to]; !found && links.Own(to) >= w.Rank {
			w.Hops = []string{to}
			out[to] = w
		}
	}
}

// addTransit adds the clusters that others pass on to.
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

// passed reports whether anybody passes on, and somebody is not found yet: most
// often one look at good links finds all.
func passed(g *fabric.Graph, from string, found map[string]ClusterPath) bool {
	passes := false
	for _, n := range g.Neighbors(from) {
		passes = passes || g.ForwardsTransit(n)
	}
	return passes && len(found) < g.Len()-1
}
