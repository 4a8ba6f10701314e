package host

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/kernel/conntrack"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// flowSyncer is the part of conntrack.Syncer that pathTracker uses.
type flowSyncer interface {
	SetLocalPods(conntrack.LocalPods)
	ClusterRemoved(cluster string)
	LinkTakenOver(cluster string, prefixes []netip.Prefix)
	ClusterAdded(cluster string, prefixes []netip.Prefix)
	LinkReleased(cluster string, prefixes []netip.Prefix)
	PathMoved(cluster string, prefixes []netip.Prefix)
	LinkAvailable(cluster string, prefixes []netip.Prefix)
	RoutesAdded(prefixes, clusterSetIPs []netip.Prefix)
}

// RoutesWritten must be called after the routes of an input were written. It updates the flows
// of this node whose path moved.
func (h *Host) RoutesWritten(in projection.Input) {
	if in.Fabric != nil {
		h.moves.update(in)
	}
}

// pathTracker reports moved paths to the conntrack syncer, after the routes were written. It is
// not safe for concurrent use.
type pathTracker struct {
	syncer   flowSyncer
	carriers map[string]string     // node whose gateway has the active path, by remote cluster; nil before the first update
	hasLink  map[string]bool       // remote clusters to which this gateway has a link
	fabric   *fabric.Fabric        // of the last update
	routed   map[netip.Prefix]bool // destinations outside this cluster; nil before the first update
}

// update reports the changes since the last input, whose routes were written.
func (m *pathTracker) update(in projection.Input) {
	cluster := in.Fabric.Cluster(in.Cluster)
	if cluster == nil {
		return
	}
	var localPods conntrack.LocalPods
	for _, n := range in.Facts.Nodes {
		if n.Name == in.Node {
			localPods.Pods = n.PodCIDRs
		}
	}
	if len(localPods.Pods) == 0 {
		localPods.Pods = cluster.PodCIDRs
	}
	localPods.KeepSource = round.FlatPrefixes(cluster, cluster.PodCIDRs)
	m.syncer.SetLocalPods(localPods)
	if in.Fabric != m.fabric {
		m.fabric = in.Fabric
		m.reportAddedRoutes(in.Fabric, in.Cluster)
	}
	for remote := range m.carriers {
		if in.Fabric.Cluster(remote) == nil {
			m.syncer.ClusterRemoved(remote)
		}
	}
	gateway := cluster.GatewayOn(in.Node) != nil
	carriers := make(map[string]string, len(in.Paths))
	for remote, path := range in.Paths {
		carriers[remote] = ""
		if g := cluster.Gateway(path.Local); g != nil {
			carriers[remote] = g.Node // the gateway may move to another node and keep its name
		}
		if c := in.Fabric.Cluster(remote); c != nil {
			m.report(c, in.Node, carriers[remote], gateway)
		}
	}
	m.carriers = carriers
	// Report new links of this gateway. Until now it handed traffic from other nodes to another
	// gateway.
	hasLink := make(map[string]bool, len(in.GatewayPaths))
	for remote := range in.GatewayPaths {
		hasLink[remote] = true
		if c := in.Fabric.Cluster(remote); c != nil && !m.hasLink[remote] {
			m.syncer.LinkAvailable(remote, reachedBy(c))
		}
	}
	m.hasLink = hasLink
}

// reportAddedRoutes reports the destinations that are new since the last update.
func (m *pathTracker) reportAddedRoutes(f *fabric.Fabric, own string) {
	routed := map[netip.Prefix]bool{}
	added := func(prefixes []netip.Prefix) (out []netip.Prefix) {
		for _, p := range prefixes {
			routed[p] = true
			if !m.routed[p] {
				out = append(out, p)
			}
		}
		return out
	}
	clusterSetIPs := added(f.ServicePools)
	var prefixes []netip.Prefix
	for i := range f.Clusters {
		if f.Clusters[i].Name != own {
			prefixes = append(prefixes, added(reachedBy(&f.Clusters[i]))...)
		}
	}
	m.routed = routed
	if len(prefixes)+len(clusterSetIPs) > 0 {
		m.syncer.RoutesAdded(prefixes, clusterSetIPs)
	}
}

func (m *pathTracker) report(remote *fabric.Cluster, self, carrier string, gateway bool) {
	previous, known := m.carriers[remote.Name]
	if known && previous == carrier {
		return
	}
	prefixes := reachedBy(remote)
	switch {
	case carrier == self && !known && m.carriers != nil:
		m.syncer.ClusterAdded(remote.Name, prefixes)
		return
	case carrier == self:
		m.syncer.LinkTakenOver(remote.Name, prefixes)
		return
	case previous == self, gateway && !known:
		m.syncer.LinkReleased(remote.Name, prefixes)
	}
	if known {
		m.syncer.PathMoved(remote.Name, prefixes)
	}
}

// reachedBy returns the prefixes by which other clusters reach a cluster.
func reachedBy(c *fabric.Cluster) []netip.Prefix {
	return slices.Concat(c.GlobalCIDRs, round.FlatPrefixes(c, c.PodCIDRs), round.FlatPrefixes(c, c.ServiceCIDRs))
}
