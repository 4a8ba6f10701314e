package health

import (
	"strconv"

	"hawser.dev/hawser/nodeagent/model"
)

// ActiveLink is the link for the traffic of a pair of clusters. Path.Down is set if Rank is Down.
type ActiveLink struct {
	model.Path
	Rank   Rank
	Reason string // such as "best of 9", "follows g1", "best of the live links", "all links down"
	// Follows is true if the other cluster leads and uses this link.
	Follows bool
}

// Pick returns the first link of the highest rank, or the first link if all are Down. It returns
// false if order is empty.
func Pick(order []model.Path, rankOf func(model.Path) Rank) (path model.Path, rank Rank, ok bool) {
	for i, p := range order {
		if r := rankOf(p); i == 0 || r > rank {
			path, rank, ok = p, r, true
		}
		if rank == Good {
			break
		}
	}
	return path, rank, ok
}

// ChooseLinks returns the active link to every neighbour, for all nodes of one cluster. Of two
// clusters, the cluster with the lower name leads: it selects by the preferences. The other cluster
// follows the leading cluster. Thus both agree even if their observations differ.
func ChooseLinks(prefs *Preferences, cluster string, s Snapshot) map[string]ActiveLink {
	local := prefs.find(cluster)
	if local < 0 {
		return nil
	}
	paths := make(map[string]ActiveLink, len(prefs.clusters))
	for i := range prefs.clusters {
		remote := prefs.clusters[i].cluster
		if remote == cluster || !prefs.graph.Linked(cluster, remote) {
			continue
		}
		pair := clusterPair{snapshot: &s, local: cluster, remote: remote}
		// Most pairs use their first choice, which needs no order of the other links.
		if first := prefs.firstOf(local, i); cluster < remote && pair.rank(first) == Good {
			paths[remote] = pair.activeLink(first, Good, "best of "+strconv.Itoa(prefs.links(local, i)))
			continue
		}
		paths[remote] = pair.choose(prefs.Order(cluster, remote))
	}
	return paths
}

// GatewayLinks returns, for each neighbour, the link over which one gateway forwards the traffic of
// other nodes. If all links are Down it returns one of them: tunnels may still forward after their
// agents died.
func GatewayLinks(prefs *Preferences, cluster, gateway string, s Snapshot) map[string]model.Path {
	paths := make(map[string]model.Path, len(prefs.clusters))
	local := prefs.find(cluster)
	for i := range prefs.clusters {
		remote := prefs.clusters[i].cluster
		if local < 0 || remote == cluster || !prefs.graph.Linked(cluster, remote) {
			continue
		}
		pair := clusterPair{snapshot: &s, local: cluster, remote: remote}
		// The only link of a pair, and a healthy first choice, need no order.
		if first := prefs.firstOf(local, i); first.Local == gateway {
			rank := pair.rank(first)
			if prefs.links(local, i) == 1 || cluster < remote && rank == Good {
				paths[remote] = pair.activeLink(first, rank, "").Path
				continue
			}
		}
		var candidates []model.Path
		for _, p := range prefs.Order(cluster, remote) {
			if p.Local == gateway {
				candidates = append(candidates, p)
			}
		}
		if len(candidates) > 0 {
			paths[remote] = pair.choose(candidates).Path
		}
	}
	return paths
}

// clusterPair has the ranks of the links of one pair of clusters.
type clusterPair struct {
	snapshot      *Snapshot
	local, remote string
}

func (c *clusterPair) peer(p model.Path) GatewayID {
	return GatewayID{Cluster: c.remote, Gateway: p.Remote}
}

func (c *clusterPair) rank(p model.Path) Rank {
	rank := c.snapshot.Rank(p.Local, c.peer(p))
	return c.snapshot.capRank(rank, GatewayID{Cluster: c.local, Gateway: p.Local}, c.peer(p))
}

// choose returns the best link of an order. In the following cluster, it prefers the links that the
// leading cluster uses.
func (c *clusterPair) choose(order []model.Path) ActiveLink {
	if c.local > c.remote {
		var used []model.Path
		for _, p := range order {
			if c.snapshot.PeerUses(p.Local, c.peer(p)) {
				used = append(used, p)
			}
		}
		if p, rank, ok := Pick(used, c.rank); ok && rank > Down {
			link := c.activeLink(p, rank, "follows "+c.remote)
			link.Follows = true
			return link
		}
	}
	p, rank, ok := Pick(order, c.rank)
	switch {
	case !ok:
		return ActiveLink{Path: model.Path{Down: true}}
	case rank == Down:
		return c.activeLink(p, rank, "all links down")
	case rank == Good && p == order[0]:
		return c.activeLink(p, rank, "best of "+strconv.Itoa(len(order)))
	}
	return c.activeLink(p, rank, "best of the live links")
}

func (c *clusterPair) activeLink(p model.Path, rank Rank, reason string) ActiveLink {
	p.Down = rank == Down
	return ActiveLink{Path: p, Rank: rank, Reason: reason}
}
