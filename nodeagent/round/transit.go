package round

import (
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// transit selects the paths to all clusters, over links and in transit. It also sets the advert of
// this cluster's links for transit traffic.
func (s *pathSelector) transit(w *paths, v nodeView, states map[string]model.ClusterState, now time.Time) {
	ranks := transitRanks{selector: s, snapshot: v, states: states}
	found := health.ClusterPaths(s.table.Graph(), s.Cluster, health.LinkRanks{
		Direct:  func(n string) health.Rank { return s.Links[n].Rank },
		Transit: ranks.transit,
	})
	next := make(map[string]activePath, len(found))
	for i := range v.fabric.Clusters {
		remote := v.fabric.Clusters[i].Name
		route, ok := found[remote]
		if remote == s.Cluster {
			continue
		}
		if have, saved := s.keepLastPath(remote, route, ok, v, now); saved {
			next[remote] = have
		} else if ok {
			next[remote] = s.selectPath(remote, route, ranks, v, now)
		} else if link, near := s.Links[remote]; near {
			next[remote] = link
		}
	}
	s.Paths = next
	var former []string
	for remote, have := range next {
		w.remote[remote] = have.Path
		if have.FormerShape {
			former = append(former, remote)
		}
	}
	w.formerShape = hasNewPath(s.table.Graph().Now, s.Cluster, former)
	w.own = gatewayPaths(w.remote, w.own)
	w.advertise = ranks.advertise()
}

// hasNewPath reports whether the new shape has a path to a cluster in former. This node still
// reaches these over the former shape. Clusters without such a path do not delay the change.
func hasNewPath(now *fabric.Graph, own string, former []string) bool {
	if len(former) == 0 {
		return false
	}
	paths := now.Paths(own, nil)
	return slices.ContainsFunc(former, func(remote string) bool { return len(paths[remote]) > 0 })
}

// gatewayPaths returns a gateway's own path to each cluster, over its link to the next cluster on
// the path.
func gatewayPaths(paths, links map[string]model.Path) map[string]model.Path {
	if links == nil {
		return nil
	}
	out := make(map[string]model.Path, len(paths))
	for remote, path := range paths {
		if own, ok := links[path.Next(remote)]; ok {
			own.Via, own.MTU = path.Via, path.MTU
			out[remote] = own
		}
	}
	return out
}

// keepLastPath returns the last path in transit if no path is up. It also returns a restored path
// until SettleTime has passed. Its link is the current link to its first cluster.
func (s *pathSelector) keepLastPath(remote string, route health.ClusterPath, found bool, v nodeView, now time.Time) (activePath, bool) {
	have, known := s.Paths[remote]
	link, near := s.Links[have.Via]
	if !known || have.Via == "" || !near || !v.exists(remote, link.via(have.Via)) {
		return activePath{}, false
	}
	early := have.Restored && now.Sub(s.StartedAt) < SettleTime && link.Rank > health.Down
	if found && (!early || strings.Join(route.Hops, " ") == have.Clusters) || !found && s.Links[remote].Rank > health.Down {
		return activePath{}, false
	}
	path := link.via(have.Via)
	path.MTU, path.Down = have.MTU, !early
	if early {
		return activePath{
			ActiveLink: health.ActiveLink{Path: path, Rank: link.Rank, Reason: have.Reason}, Since: have.Since, Restored: true, Clusters: have.Clusters,
		}, true
	}
	return activePath{ActiveLink: health.ActiveLink{Path: path, Reason: "no live link: keeping the last path"}, Since: have.Since, Clusters: have.Clusters}, true
}

// via returns the link to a neighbouring cluster as a path in transit through this cluster.
func (p activePath) via(via string) model.Path {
	return model.Path{Local: p.Local, Remote: p.Remote, Via: via}
}

// selectPath returns the active path to a cluster, and records a move if its Via changed.
func (s *pathSelector) selectPath(remote string, route health.ClusterPath, ranks transitRanks, v nodeView, now time.Time) activePath {
	have, known := s.Paths[remote]
	link := s.Links[route.Hops[0]]
	out := link
	if len(route.Hops) > 1 {
		path := link.via(route.Hops[0])
		path.MTU = ranks.size(route.Hops)
		out = activePath{
			ActiveLink: health.ActiveLink{Path: path, Rank: route.Rank, Reason: transitReason(route)},
			Since:      now, Clusters: strings.Join(route.Hops, " "),
		}
		if known && have.Clusters == out.Clusters {
			out.Since = have.Since
		}
	}
	out.FormerShape = route.FormerShape
	if known && have.Via != out.Via && (have.Local != "" || have.Remote != "") {
		m := status.Move{At: now, Cluster: remote, From: v.pathText(remote, have), To: v.pathText(remote, out), Kind: causeTransit, Cause: transitCause(have, out)}
		s.recordMove(m)
	}
	return out
}

func transitReason(route health.ClusterPath) string {
	over := route.Hops[:len(route.Hops)-1]
	why := "through " + strings.Join(over, ", ")
	if route.FormerShape {
		why += " (until links of the new shape are verified)"
	}
	return why
}

// transitClusters returns the clusters that forward transit traffic.
func (p activePath) transitClusters() []string {
	if p.Via == "" {
		return nil
	}
	names := strings.Fields(p.Clusters)
	return names[:max(len(names)-1, 0)]
}

// pathText returns a path as text for the status: the link and the transit clusters.
func (v nodeView) pathText(remote string, have activePath) string {
	text := v.name(remote, have.Path)
	if through := have.transitClusters(); len(through) > 0 {
		text += " through " + strings.Join(through, ", ")
	}
	return text
}

func transitCause(have, next activePath) string {
	switch {
	case next.Via == "":
		return "a direct link is up"
	case have.Via == "":
		return "no direct link is up or configured"
	case have.Rank == health.Down:
		return "no path through " + have.Via + " is up"
	}
	return "the path through " + next.Via + " is better now"
}

// transitRanks has the ranks of links for transit traffic.
type transitRanks struct {
	selector *pathSelector
	snapshot nodeView
	states   map[string]model.ClusterState
}

// transit returns the rank of the link between two clusters. If this cluster is one of them, its
// probes decide. Otherwise it is the lower rank of the two clusters' reports. Without reports it is
// Good.
func (k transitRanks) transit(a, b string) health.Rank {
	switch k.selector.Cluster {
	case a:
		return k.toNeighbor(b)
	case b:
		return k.toNeighbor(a)
	}
	return min(k.advertised(a, b).rank(), k.advertised(b, a).rank())
}

// toNeighbor returns the rank of the link to a neighbouring cluster; Down if one of its gateways does
// not accept transit.
func (k transitRanks) toNeighbor(n string) health.Rank {
	link, near := k.selector.Links[n]
	if !near || !k.snapshot.links.AcceptsTransit(link.Local, health.GatewayID{Cluster: n, Gateway: link.Remote}) {
		return health.Down
	}
	return link.Rank
}

// linkReport is the report of a cluster about its link to a neighbouring cluster.
type linkReport struct{ *model.TransitEdge }

func (w linkReport) rank() health.Rank {
	if w.TransitEdge == nil {
		return health.Good
	}
	return health.Rank(min(max(w.Rank, 0), int(health.Good)))
}

func (k transitRanks) advertised(cluster, neighbour string) linkReport {
	state, ok := k.states[cluster]
	if !ok {
		return linkReport{}
	}
	if state.Transit == nil {
		return linkReport{&model.TransitEdge{}}
	}
	i := slices.IndexFunc(state.Transit.Edges, func(e model.TransitEdge) bool { return e.Cluster == neighbour })
	if i < 0 {
		return linkReport{}
	}
	return linkReport{&state.Transit.Edges[i]}
}

// size returns the path MTU of a path after its first link, in bytes; 0 if no link limits it.
func (k transitRanks) size(over []string) int {
	size := 0
	for i := range over[1:] {
		for _, w := range []linkReport{k.advertised(over[i], over[i+1]), k.advertised(over[i+1], over[i])} {
			if w.TransitEdge != nil && w.MTU > 0 && (size == 0 || w.MTU < size) {
				size = w.MTU
			}
		}
	}
	return size
}

// advertise returns this cluster's report about its links.
func (k transitRanks) advertise() *model.TransitAdvert {
	out := &model.TransitAdvert{}
	for _, n := range slices.Sorted(maps.Keys(k.selector.Links)) {
		if rank, mtu := k.toNeighbor(n), k.snapshot.pathMTU(n, k.selector.Links[n].Path); rank < health.Good || mtu > 0 {
			out.Edges = append(out.Edges, model.TransitEdge{Cluster: n, Rank: int(rank), MTU: mtu})
		}
	}
	return out
}
