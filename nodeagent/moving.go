package nodeagent

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/flows"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// mover tells the keeper of flows what moved, once the routes are written. Only
// the engine's goroutine uses it.
type mover struct {
	keeper *flows.Keeper
	told   map[string]project.Path // by remote cluster; nil = nothing yet
	own    map[string]bool         // remote clusters to which this gateway has a link
}

// follow takes over the links that the routes lead through now.
func (m *mover) follow(in project.Input) {
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil {
		return
	}
	gateway := ""
	if g := own.GatewayOn(in.Node); g != nil {
		gateway = g.Name
	}
	m.keeper.SetOwn(ownPods(in, own))
	for remote := range m.told {
		if in.Fabric.Cluster(remote) == nil {
			m.keeper.Gone(remote)
		}
	}
	told := make(map[string]project.Path, len(in.Paths))
	for remote, path := range in.Paths {
		told[remote] = path
		if c := in.Fabric.Cluster(remote); c != nil {
			m.tell(own, c, gateway, path)
		}
	}
	m.told = told
	m.transit(in)
}

// transit tells of links of this gateway that appeared: what other nodes handed
// to it meanwhile went on to another gateway.
func (m *mover) transit(in project.Input) {
	have := make(map[string]bool, len(in.Transit))
	for remote := range in.Transit {
		have[remote] = true
		if c := in.Fabric.Cluster(remote); c != nil && !m.own[remote] {
			m.keeper.Transits(remote, reachedBy(c))
		}
	}
	m.own = have
}

func (m *mover) tell(own, remote *fabric.Cluster, gateway string, path project.Path) {
	before, known := m.told[remote.Name]
	if known && before.Local == path.Local {
		return
	}
	prefixes := reachedBy(remote)
	carries, carried := gateway != "" && path.Local == gateway, gateway != "" && before.Local == gateway
	switch {
	case carries:
		m.keeper.Carries(remote.Name, prefixes)
		return
	case carried, gateway != "" && !known:
		m.keeper.Left(remote.Name, prefixes)
	}
	if known {
		m.keeper.Moved(remote.Name, prefixes)
	}
}

// reachedBy gives the prefixes by which others reach a cluster.
func reachedBy(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, unhidden(c, c.PodCIDRs), unhidden(c, c.ServiceCIDRs))
}

// unhidden gives those of a cluster's own prefixes that others know.
func unhidden(c *fabric.Cluster, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return c.Hides(fabric.Family(p.Addr())) })
}

func ownPods(in project.Input, own *fabric.Cluster) flows.Own {
	var out flows.Own
	for _, n := range in.Facts.Nodes {
		if n.Name == in.Node {
			out.Pods = n.PodCIDRs
		}
	}
	if len(out.Pods) == 0 {
		out.Pods = own.PodCIDRs
	}
	out.Kept = unhidden(own, own.PodCIDRs)
	return out
}
