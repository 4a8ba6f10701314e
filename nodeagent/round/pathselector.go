package round

import (
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

const (
	// maxMoves is the number of moves in the status.
	maxMoves = 64
	// SettleTime limits how long a restored link stays active without complete observations. A
	// round must run after this time, even without an event.
	SettleTime = 2 * time.Second
)

// pathSelector has the active path to each other cluster and the last moves. Only next, and the
// methods that it calls, modify a pathSelector: a copy, which next returns.
type pathSelector struct {
	Cluster      string                `json:"cluster"`
	StartedAt    time.Time             `json:"startedAt"`
	Links        map[string]activePath `json:"links"`        // the active link to each neighbouring cluster
	Paths        map[string]activePath `json:"paths"`        // the active path to each other cluster: a link, or a path in transit
	GatewayLinks map[string]model.Path `json:"gatewayLinks"` // this gateway's own links, for traffic that nodes hand over
	WasActive    map[string]bool       `json:"wasActive"`    // links that were active before, as remote cluster and link
	Moves        []status.Move         `json:"moves"`        // oldest first

	newMoves []status.Move       // of the last step
	table    *health.Preferences // of the fabric of the last step
}

// activePath is the active path to one remote cluster, and its first link.
type activePath struct {
	health.ActiveLink
	Since    time.Time `json:"since"`
	Restored bool      `json:"restored,omitempty"` // saved by the previous agent, not confirmed yet
	// Clusters lists the clusters on the path, separated by spaces, the remote cluster last;
	// empty if the path is one link.
	Clusters    string `json:"clusters,omitempty"`
	FormerShape bool   `json:"formerShape,omitempty"` // the path belongs to the former shape
}

// withLinkDown returns the previous link, marked as down. The agents may be dead while their
// tunnels still forward.
func (p activePath) withLinkDown(want health.ActiveLink) activePath {
	path := p.Path
	path.Down = true
	return activePath{ActiveLink: health.ActiveLink{Path: path, Rank: want.Rank, Reason: want.Reason + ": keeping the last link"}, Since: p.Since}
}

func newPathSelector(cluster string, now time.Time) *pathSelector {
	return &pathSelector{
		Cluster: cluster, StartedAt: now, Links: map[string]activePath{}, Paths: map[string]activePath{}, WasActive: map[string]bool{},
	}
}

// paths is the result of a selection.
type paths struct {
	remote      map[string]model.Path // by remote cluster
	own         map[string]model.Path // on a gateway: its own links
	links       map[string]model.Path // links to neighbouring clusters, including unused ones
	advertise   *model.TransitAdvert  // advert of this cluster's links; nil in a mesh
	formerShape bool                  // some path belongs to the former shape
}

// next selects the paths again and returns the new pathSelector. states has the states of other
// clusters. next does not modify its receiver.
func (s *pathSelector) next(v nodeView, states map[string]model.ClusterState, now time.Time) (*pathSelector, paths) {
	next := *s
	next.newMoves = nil
	if next.table == nil || !next.table.Same(v.fabric, v.before) {
		next.table = health.NewPreferences(v.fabric, v.before)
	}
	return &next, next.selectAll(v, states, now)
}

func (s *pathSelector) selectAll(v nodeView, states map[string]model.ClusterState, now time.Time) paths {
	out := paths{remote: map[string]model.Path{}, links: map[string]model.Path{}}
	if v.gateway != "" {
		out.own = s.ownLinks(health.GatewayLinks(s.table, s.Cluster, v.gateway, v.links), v)
	}
	links := make(map[string]activePath, len(s.Links))
	want := health.ChooseLinks(s.table, s.Cluster, v.links)
	for _, remote := range slices.Sorted(maps.Keys(want)) { // sorted, so that moves have a stable order
		links[remote] = s.selectLink(remote, want[remote], v, now)
		out.links[remote] = links[remote].Path
	}
	s.Links = links
	if s.table.Graph().Mesh() {
		s.Paths, out.remote = links, maps.Clone(out.links)
		return out
	}
	s.transit(&out, v, states, now)
	return out
}

// selectLink returns the active link to a neighbouring cluster, and records a move if it changed.
func (s *pathSelector) selectLink(remote string, want health.ActiveLink, v nodeView, now time.Time) activePath {
	have, known := s.Links[remote]
	if known && sameLink(have.Path, want.Path) {
		return activePath{ActiveLink: want, Since: have.Since}
	}
	// With complete observations, the other nodes may already use another link than the
	// restored one. Replies to new TCP connections would arrive at the gateway of that link,
	// which saw no SYN and drops them.
	early := have.Restored && now.Sub(s.StartedAt) < SettleTime && !v.links.Complete()
	if early && v.rank(remote, have.Path) > health.Down {
		have.Rank = v.rank(remote, have.Path)
		return have
	}
	if known && want.Rank == health.Down && v.exists(remote, have.Path) {
		return have.withLinkDown(want)
	}
	m := status.Move{At: now, Cluster: remote, To: v.name(remote, want.Path)}
	if known {
		m.From = v.name(remote, have.Path)
		m.Silent = v.silent(remote, have.Path, now)
	}
	m.Kind, m.Cause = v.cause(remote, have, want, s.WasActive[remote+" "+m.To])
	if !s.WasActive[remote+" "+m.To] {
		s.WasActive = maps.Clone(s.WasActive)
		s.WasActive[remote+" "+m.To] = true
	}
	s.recordMove(m)
	return activePath{ActiveLink: want, Since: now}
}

// ownLinks returns this gateway's own links. If all its links to a cluster are down, it returns the
// last used link.
func (s *pathSelector) ownLinks(want map[string]model.Path, v nodeView) map[string]model.Path {
	for remote, path := range want {
		if have, known := s.GatewayLinks[remote]; known && path.Down && have.Local == v.gateway && v.exists(remote, have) {
			have.Down = true
			want[remote] = have
		}
	}
	s.GatewayLinks = maps.Clone(want)
	return want
}

// recordMove adds a move to Moves, which has at most maxMoves.
func (s *pathSelector) recordMove(m status.Move) {
	s.newMoves = append(s.newMoves, m)
	s.Moves = append(slices.Clip(s.Moves), m)
	if more := len(s.Moves) - maxMoves; more > 0 {
		s.Moves = slices.Clone(s.Moves[more:])
	}
}

// state returns the active paths and the last moves for the status.
func (s *pathSelector) state(v nodeView) ([]status.Path, []status.Move) {
	var out []status.Path
	for _, remote := range slices.Sorted(maps.Keys(s.Paths)) {
		have := s.Paths[remote]
		p := status.Path{
			Cluster: remote, Link: v.name(remote, have.Path), LocalGateway: have.Local, RemoteGateway: have.Remote,
			Rank: have.Rank.String(), Reason: have.Reason, Since: have.Since, MTU: have.MTU, Transit: have.transitClusters(),
		}
		for i := range s.Moves {
			if s.Moves[i].Cluster == remote {
				p.LastMove = &s.Moves[i]
			}
		}
		if p.LastMove != nil {
			move := *p.LastMove
			p.LastMove = &move
		}
		out = append(out, p)
	}
	return out, slices.Clone(s.Moves)
}

// sameLinks reports whether two selectors have the same active links to the neighbouring clusters.
func (s *pathSelector) sameLinks(o *pathSelector) bool {
	return maps.EqualFunc(s.Links, o.Links, func(a, b activePath) bool { return a.Path == b.Path })
}

func sameLink(a, b model.Path) bool { return a.Local == b.Local && a.Remote == b.Remote }

// SavedPath is an active path in the state directory.
type SavedPath struct {
	Local    string    `json:"local"`
	Remote   string    `json:"remote"`
	Via      string    `json:"via,omitempty"`      // as in model.Path
	Clusters string    `json:"clusters,omitempty"` // the clusters on the path
	Since    time.Time `json:"since"`
	Reason   string    `json:"reason"`
}

// saved returns the active paths, by remote cluster, for the next agent.
func (s *pathSelector) saved() map[string]SavedPath {
	out := make(map[string]SavedPath, len(s.Paths))
	for remote, have := range s.Paths {
		out[remote] = SavedPath{
			Local: have.Local, Remote: have.Remote, Via: have.Via, Clusters: have.Clusters, Since: have.Since, Reason: have.Reason,
		}
	}
	return out
}

// restorePathSelector starts with the paths that the previous agent saved, so that a restart moves
// no traffic.
func restorePathSelector(cluster string, saved map[string]SavedPath, now time.Time) *pathSelector {
	s := newPathSelector(cluster, now)
	for remote, k := range saved {
		path := model.Path{Local: k.Local, Remote: k.Remote, Via: k.Via}
		s.Paths[remote] = activePath{ActiveLink: health.ActiveLink{Path: path, Reason: k.Reason}, Since: k.Since, Restored: true, Clusters: k.Clusters}
		if k.Via == "" {
			s.Links[remote] = s.Paths[remote]
		}
		s.WasActive[remote+" "+nodeView{cluster: cluster}.name(remote, path)] = true
	}
	return s
}

// gatewayOf returns the gateway on a node; empty = none.
func gatewayOf(f *fabric.Fabric, cluster, node string) string {
	if own := f.Cluster(cluster); own != nil {
		if g := own.GatewayOn(node); g != nil {
			return g.Name
		}
	}
	return ""
}
