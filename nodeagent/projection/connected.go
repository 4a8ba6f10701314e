package projection

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// findConnected records and reports the parts of a remote cluster's prefixes that overlap a network
// of this node. The network takes precedence: this node does not route these addresses to the
// cluster.
func (v *builder) findConnected(r *remoteCluster) {
	var texts []string
	for _, n := range v.in.Local.Networks {
		for _, p := range r.destinations {
			if !p.Overlaps(n.Prefix) {
				continue
			}
			smaller := p
			if n.Prefix.Bits() > p.Bits() {
				smaller = n.Prefix.Masked()
			}
			r.connected = append(r.connected, model.Network{Prefix: smaller, Link: n.Link})
			texts = append(texts, n.Prefix.String()+" on "+n.Link+" overlaps "+p.String())
		}
	}
	if len(texts) > 0 {
		v.problem(clusterPath(r.Name), status.ConnectedNetwork, "networks of node "+v.in.Node+" have addresses of cluster "+r.Name+" ("+
			strings.Join(shorten(texts), ", ")+"), so they are not routed to the cluster from this node: use other addresses for "+
			"the networks or the cluster, or globalnet: always for the cluster if these are its pods or Services")
	}
}

// reportNetworkConflicts reports networks of the node that contain addresses of the clusterset.
// Every cluster needs these addresses.
func (v *builder) reportNetworkConflicts() {
	var texts []string
	for _, n := range v.in.Local.Networks {
		for _, p := range slices.Concat(v.in.Fabric.ServicePools, v.in.Fabric.TunnelPools, v.self.GlobalCIDRs) {
			if p.Overlaps(n.Prefix) {
				texts = append(texts, n.Prefix.String()+" on "+n.Link+" overlaps "+p.String())
			}
		}
	}
	if len(texts) > 0 {
		v.problem(clusterPath(v.self.Name), status.ConnectedNetwork, "networks of node "+v.in.Node+" have addresses of the clusterset ("+
			strings.Join(shorten(texts), ", ")+"), so these networks get the packets for them: use other addresses for the networks, or for "+
			"services.cidr, tunnel.cidr or globalCIDR")
	}
}

// onNetwork reports whether an address of a remote cluster is on a network of this node.
func (r *remoteCluster) onNetwork(a netip.Addr) bool {
	return slices.ContainsFunc(r.connected, func(n model.Network) bool { return n.Prefix.Contains(a) })
}

// reaches reports whether this node routes packets for an address to the remote cluster.
func (r *remoteCluster) reaches(a netip.Addr) bool { return r.isDestination(a) && !r.onNetwork(a) }

// routeConnected adds throw routes for the networks of this node, so that the main routing table
// routes their addresses.
func (v *builder) routeConnected(r *remoteCluster) {
	for _, n := range r.connected {
		v.route(desired.Route{Table: desired.TableOut, Dst: n.Prefix, Type: desired.RouteThrow, Origin: clusterPath(r.Name)})
	}
}

// addConnected fills the sets of addresses on networks of this node. Ranges of one set and device
// must not overlap.
func (v *builder) addConnected() {
	var all []netip.Prefix
	byLink := map[string][]netip.Prefix{}
	for _, r := range v.remotes {
		for _, n := range r.connected {
			all = append(all, n.Prefix)
			byLink[n.Link] = append(byLink[n.Link], n.Prefix)
		}
	}
	const origin = "networks of the node"
	for _, p := range disjoint(all) {
		v.elements.prefix(desired.SetNetworks, p, netip.Prefix{}, origin)
	}
	for link, prefixes := range byLink {
		for _, p := range disjoint(prefixes) {
			v.elements.add(desired.Element{
				Set: desired.SetConnected, Family: fabric.Family(p.Addr()), ID: cidr.Format(p) + " . " + link, Origin: origin,
			})
		}
	}
}
