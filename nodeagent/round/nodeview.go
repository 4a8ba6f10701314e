package round

import (
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

// nodeView is the state of links as this node observes it.
type nodeView struct {
	fabric  *fabric.Fabric
	cluster string
	gateway string // on this node; empty = none
	links   health.Snapshot
	before  *fabric.Shape // former topology; nil = none
	// narrow has the path MTUs, in bytes, by remote gateway. It omits links whose path MTU is
	// not less than their MTU.
	narrow map[string]int
}

// pathMTU returns the path MTU of a link to a neighbour, in bytes; 0 if this gateway does not know
// it or it is not less than the MTU of the link.
func (v nodeView) pathMTU(neighbour string, p model.Path) int {
	if p.Local != v.gateway {
		return 0
	}
	return v.narrow[health.GatewayID{Cluster: neighbour, Gateway: p.Remote}.String()]
}

// name returns a link as text, such as g1/a-g2/b. Cluster g2 is the next cluster on the path to
// remote.
func (v nodeView) name(remote string, p model.Path) string {
	return v.cluster + "/" + p.Local + "-" + p.Next(remote) + "/" + p.Remote
}

func (v nodeView) rank(remote string, p model.Path) health.Rank {
	return v.links.Rank(p.Local, health.GatewayID{Cluster: p.Next(remote), Gateway: p.Remote})
}

// exists reports whether both ends of a link are in the fabric.
func (v nodeView) exists(remote string, p model.Path) bool {
	return v.fabric.Cluster(v.cluster).Gateway(p.Local) != nil && v.fabric.Cluster(p.Next(remote)).Gateway(p.Remote) != nil
}

// link returns the link that this node probes for a path. The gateway of the path probes the
// tunnel. Other nodes probe that gateway.
func (v nodeView) link(remote string, p model.Path) (health.Link, bool) {
	peer := health.GatewayID{Cluster: v.cluster, Gateway: p.Local}
	if v.gateway == p.Local {
		peer = health.GatewayID{Cluster: remote, Gateway: p.Remote}
	}
	i := slices.IndexFunc(v.links.Links, func(l health.Link) bool { return l.Target.Peer == peer })
	if i < 0 {
		return health.Link{}, false
	}
	return v.links.Links[i], true
}

// silent returns the time since the last reply on a dead link; empty if the link is not dead.
func (v nodeView) silent(remote string, p model.Path, now time.Time) string {
	link, probed := v.link(remote, p)
	if !probed || link.Liveness != health.Dead {
		return ""
	}
	last := link.Answered
	if last.IsZero() {
		last = link.Since
	}
	return now.Sub(last).Round(time.Millisecond).String()
}

// Causes of a move, as label values of the metric.
const (
	causeFirst     = "first"
	causeRemoved   = "removed"
	causeDead      = "dead"
	causeIsolated  = "isolated"
	causeDraining  = "draining"
	causeUnsteady  = "unsteady"
	causePeer      = "peer"
	causeRecovered = "recovered"
	causeBetter    = "better"
	causeTransit   = "transit"
)

// cause returns why traffic moved from one link to another. had is true if the new link was in use
// before.
func (v nodeView) cause(remote string, have activePath, want health.ActiveLink, had bool) (kind, text string) {
	if have.Local == "" && have.Remote == "" {
		return causeFirst, "first choice"
	}
	if gone := v.removed(remote, have.Path); gone != "" {
		return causeRemoved, "gateway removed: " + gone
	}
	switch rank := v.rank(remote, have.Path); {
	case rank >= want.Rank && want.Follows:
		return causePeer, want.Reason
	case rank == health.Down:
		return causeDead, v.deadGateway(remote, have.Path)
	case rank == health.Isolated:
		return causeIsolated, v.reason(remote, have.Path, "one of its gateways reaches no other node of its cluster")
	case rank == health.Draining && rank < want.Rank:
		return causeDraining, v.reason(remote, have.Path, "one of its gateways drains")
	case rank == health.Unsteady && rank < want.Rank:
		return causeUnsteady, v.reason(remote, have.Path, "link is unsteady")
	case had:
		return causeRecovered, "link is steady again"
	}
	return causeBetter, "a better link is ready"
}

// removed returns the gateway of a link that the fabric lacks; empty if it has both.
func (v nodeView) removed(remote string, p model.Path) string {
	for _, end := range []health.GatewayID{{Cluster: v.cluster, Gateway: p.Local}, {Cluster: remote, Gateway: p.Remote}} {
		if v.fabric.Cluster(end.Cluster).Gateway(end.Gateway) == nil {
			return end.String()
		}
	}
	return ""
}

// deadGateway returns a text about the gateway that does not reply.
func (v nodeView) deadGateway(remote string, p model.Path) string {
	link, probed := v.link(remote, p)
	if probed && link.Liveness == health.Dead {
		last := link.Answered
		if last.IsZero() {
			last = link.Since
		}
		return link.Target.Peer.String() + " does not answer probes since " + last.UTC().Format("15:04:05.000Z")
	}
	if v.gateway == p.Local {
		return v.reason(remote, p, remote+"/"+p.Remote+" is down")
	}
	return v.cluster + "/" + p.Local + " does not reach " + remote + "/" + p.Remote
}

// reason returns the prober's reason for the state of a link, or the text otherwise if the prober
// has none.
func (v nodeView) reason(remote string, p model.Path, otherwise string) string {
	if link, probed := v.link(remote, p); probed && v.gateway == p.Local && link.Reason != "" {
		return link.Reason
	}
	return otherwise
}
