package host

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/flows"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// keeper is what mover asks of flows.Keeper.
type keeper interface {
	SetOwn(flows.Own)
	Gone(cluster string)
	Carries(cluster string, prefixes []netip.Prefix)
	Left(cluster string, prefixes []netip.Prefix)
	Moved(cluster string, prefixes []netip.Prefix)
	Transits(cluster string, prefixes []netip.Prefix)
}

// Routed follows routes that were written, of that input: the flows of this node go where
// they lead now.
func (h *Host) Routed(in project.Input) {
	if in.Fabric != nil {
		h.moves.follow(in)
	}
}

// mover tells the keeper of flows what moved, once the routes are written. Only
// the engine's goroutine uses it.
type mover struct {
	keeper keeper
	told   map[string]string // node whose gateway carries the traffic, by remote cluster; nil = nothing yet
	own    map[string]bool   // remote clusters to which this gateway has a link
}

// follow takes over the links that the routes lead through now.
func (m *mover) follow(in project.Input) {
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil {
		return
	}
	var out flows.Own
	for _, n := range in.Facts.Nodes {
		if n.Name == in.Node {
			out.Pods = n.PodCIDRs
		}
	}
	if len(out.Pods) == 0 {
		out.Pods = own.PodCIDRs
	}
	out.Kept = round.Visible(own, own.PodCIDRs)
	m.keeper.SetOwn(out)
	for remote := range m.told {
		if in.Fabric.Cluster(remote) == nil {
			m.keeper.Gone(remote)
		}
	}
	gateway := own.GatewayOn(in.Node) != nil
	told := make(map[string]string, len(in.Paths))
	for remote, path := range in.Paths {
		told[remote] = ""
		if g := own.Gateway(path.Local); g != nil {
			told[remote] = g.Node // the gateway may move to another one and keep its name
		}
		if c := in.Fabric.Cluster(remote); c != nil {
			m.tell(c, in.Node, told[remote], gateway)
		}
	}
	m.told = told
	// Links of this gateway that appeared: what other nodes handed to it meanwhile went on to
	// another gateway.
	have := make(map[string]bool, len(in.Transit))
	for remote := range in.Transit {
		have[remote] = true
		if c := in.Fabric.Cluster(remote); c != nil && !m.own[remote] {
			m.keeper.Transits(remote, reachedBy(c))
		}
	}
	m.own = have
}

func (m *mover) tell(remote *fabric.Cluster, self, carrier string, gateway bool) {
	before, known := m.told[remote.Name]
	if known && before == carrier {
		return
	}
	prefixes := reachedBy(remote)
	switch {
	case carrier == self:
		m.keeper.Carries(remote.Name, prefixes)
		return
	case before == self, gateway && !known:
		m.keeper.Left(remote.Name, prefixes)
	}
	if known {
		m.keeper.Moved(remote.Name, prefixes)
	}
}

// reachedBy gives the prefixes by which others reach a cluster.
func reachedBy(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, round.Visible(c, c.PodCIDRs), round.Visible(c, c.ServiceCIDRs))
}
