package health

import (
	"strconv"

	"hawser.dev/hawser/nodeagent/model"
)

// ActiveLink is the link for the traffic of a pair of clusters. Its Down is set if its rank is Down.
type ActiveLink struct {
	model.Path
	Rank   Rank
	Reason string // such as "best of 9", "follows g1", "best of the live links", "all links down"
}

// Pick returns the first link of the highest rank, or the first link if all are Down. It reports false if
// the order is empty.
func Pick(order []model.Path, fit func(model.Path) Rank) (path model.Path, rank Rank, ok bool) {
	for i, p := range order {
		if r := fit(p); i == 0 || r > rank {
			path, rank, ok = p, r, true
		}
		if rank == Good {
			break
		}
	}
	return path, rank, ok
}

// ChooseLinks returns the active link to every neighbour in the table, for all nodes of one
// cluster. Of two clusters, the one with the lower name selects by the table, and the other
// uses the same link as the first one. So both agree even if their observations differ.
func ChooseLinks(t *Preferences, cluster string, s Snapshot) map[string]ActiveLink {
	own := t.find(cluster)
	if own < 0 {
		return nil
	}
	paths := make(map[string]ActiveLink, len(t.sides))
	for i := range t.sides {
		remote := t.sides[i].cluster
		if remote == cluster || !t.net.Linked(cluster, remote) {
			continue
		}
		v := view{snapshot: &s, cluster: cluster, remote: remote}
		// Most pairs use their first choice: it needs no order of the others.
		if first := t.firstOf(own, i); cluster < remote && v.rank(first) == Good {
			paths[remote] = v.choice(first, Good, "best of "+strconv.Itoa(t.links(own, i)))
			continue
		}
		paths[remote] = v.choose(t.Order(cluster, remote))
	}
	return paths
}

// GatewayLinks returns, for each neighbour, the link of one gateway for traffic that other nodes hand
// to it. If all links are Down it returns one of them: agents may be dead while their tunnels
// still forward.
func GatewayLinks(t *Preferences, cluster, gateway string, s Snapshot) map[string]model.Path {
	paths := make(map[string]model.Path, len(t.sides))
	side := t.find(cluster)
	for i := range t.sides {
		remote := t.sides[i].cluster
		if side < 0 || remote == cluster || !t.net.Linked(cluster, remote) {
			continue
		}
		v := view{snapshot: &s, cluster: cluster, remote: remote}
		// The only link of a pair, and a healthy first choice, need no order.
		if first := t.firstOf(side, i); first.Local == gateway {
			rank := v.rank(first)
			if t.links(side, i) == 1 || cluster < remote && rank == Good {
				paths[remote] = v.choice(first, rank, "").Path
				continue
			}
		}
		var own []model.Path
		for _, p := range t.Order(cluster, remote) {
			if p.Local == gateway {
				own = append(own, p)
			}
		}
		if len(own) > 0 {
			paths[remote] = v.choose(own).Path
		}
	}
	return paths
}

// view has the ranks of the links of one pair of clusters.
type view struct {
	snapshot        *Snapshot
	cluster, remote string
}

func (v *view) peer(p model.Path) GatewayID { return GatewayID{Cluster: v.remote, Gateway: p.Remote} }

func (v *view) rank(p model.Path) Rank {
	rank := v.snapshot.Rank(p.Local, v.peer(p))
	return v.snapshot.capRank(rank, GatewayID{Cluster: v.cluster, Gateway: p.Local}, v.peer(p))
}

// choose returns the best link of an order, or of the links that the leading cluster uses.
func (v *view) choose(order []model.Path) ActiveLink {
	if v.cluster > v.remote {
		var used []model.Path
		for _, p := range order {
			if v.snapshot.PeerUses(p.Local, v.peer(p)) {
				used = append(used, p)
			}
		}
		if p, rank, ok := Pick(used, v.rank); ok && rank > Down {
			return v.choice(p, rank, "follows "+v.remote)
		}
	}
	p, rank, ok := Pick(order, v.rank)
	switch {
	case !ok:
		return ActiveLink{Path: model.Path{Down: true}}
	case rank == Down:
		return v.choice(p, rank, "all links down")
	case rank == Good && p == order[0]:
		return v.choice(p, rank, "best of "+strconv.Itoa(len(order)))
	}
	return v.choice(p, rank, "best of the live links")
}

func (v *view) choice(p model.Path, rank Rank, why string) ActiveLink {
	p.Down = rank == Down
	return ActiveLink{Path: p, Rank: rank, Reason: why}
}
