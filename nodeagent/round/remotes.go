package round

import (
	"net/netip"
	"reflect"
	"slices"

	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// Remote is a gateway of another cluster to which this node has a link.
type Remote struct {
	endpoint.Remote
	Driver    string
	Endpoints int // in the topology
	// HasAlternatives reports whether probes select the endpoint. They do if there are several
	// candidates, or if the address may change.
	HasAlternatives bool
}

// remotesInput is the input of remotesOf.
type remotesInput struct {
	fabric     *fabric.Fabric
	resolved   map[string][]netip.Addr
	discovered map[string][]model.DiscoveredEndpoint
	nodes      []model.Node
}

// remotesOf returns the remote gateways of an input. It returns the same slice while their input is
// unchanged.
func (c *cache) remotesOf(in projection.Input) []Remote {
	next := remotesInput{fabric: in.Fabric, resolved: in.Local.Resolved, discovered: in.Local.Discovered, nodes: in.Facts.Nodes}
	if next.fabric == c.input.fabric && reflect.DeepEqual(next, c.input) {
		return c.remotes
	}
	c.input, c.remotes = next, nil
	own, held := in.Fabric.Cluster(in.Cluster), tunnelAddresses(in.Fabric)
	for _, r := range projection.Reaches(in) {
		c.remotes = append(c.remotes, Remote{
			Remote: endpoint.Remote{
				Name: r.Cluster + "/" + r.Gateway.Name, Candidates: r.Candidates, CanProbe: r.Driver != fabric.DriverVXLAN,
				Improves: searchesEndpoints(in, own.GatewayOn(in.Node), r, held), NeedsSecondary: r.Driver == fabric.DriverIPsec,
			},
			Driver: r.Driver, Endpoints: len(r.Gateway.Endpoints), HasAlternatives: len(r.Candidates) > 1 || r.MayChange,
		})
	}
	return c.remotes
}

// searchesEndpoints reports whether this gateway searches for better endpoints of the pair. If only
// one gateway has endpoints in the topology, the other gateway searches. Otherwise the first
// cluster by name searches. With VXLAN each gateway selects the endpoint of its own packets. With
// IPsec the initiator searches, unless held contains an address of the secondary connection.
func searchesEndpoints(in projection.Input, own *fabric.Gateway, r projection.EndpointCandidates, held map[netip.Addr]bool) bool {
	switch r.Driver {
	case fabric.DriverVXLAN:
		return true
	case fabric.DriverIPsec:
		return driver.IsInitiator(in.Cluster, own, r.Cluster, r.Gateway) && isSecondaryFree(in.Fabric.TunnelPools, held, own, r.Gateway)
	}
	if own.HasStaticEndpoint() != r.Gateway.HasStaticEndpoint() {
		return r.Gateway.HasStaticEndpoint()
	}
	return in.Cluster < r.Cluster
}

// isSecondaryFree reports whether held has no alternate address of the gateways.
func isSecondaryFree(pools []netip.Prefix, held map[netip.Addr]bool, gateways ...*fabric.Gateway) bool {
	return !slices.ContainsFunc(gateways, func(g *fabric.Gateway) bool {
		return slices.ContainsFunc(g.Addresses, func(a netip.Addr) bool { return held[fabric.AlternateAddr(pools, a)] })
	})
}

// tunnelAddresses returns the tunnel addresses of all gateways, without alternate addresses.
func tunnelAddresses(f *fabric.Fabric) map[netip.Addr]bool {
	held := map[netip.Addr]bool{}
	for i := range f.Clusters {
		for _, g := range f.Clusters[i].Gateways {
			for _, a := range g.Addresses {
				held[a] = true
			}
		}
	}
	return held
}
