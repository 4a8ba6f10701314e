package endpoint

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// maxObserved limits the observed addresses of one gateway.
const maxObserved = 2

// ObservedAddrs are the addresses from which packets of remote gateways arrive, by
// cluster/gateway. The port is the base port.
type ObservedAddrs map[string]netip.AddrPort

// BuildAdvert returns the discovered endpoints of the local cluster's gateways, and the observed
// addresses of remote gateways with fabric.SourceObserved. It returns nil if there are none.
// resolved has the addresses of names, as in model.HostState. live has the state of each remote
// cluster.
func BuildAdvert(f *fabric.Fabric, cluster string, facts model.Facts, resolved map[string][]netip.Addr, live map[string]model.ClusterState, observed ObservedAddrs) *model.EndpointAdvert {
	c := f.Cluster(cluster)
	if c == nil {
		return nil
	}
	out := model.EndpointAdvert{Discovered: map[string][]model.DiscoveredEndpoint{}, Observed: map[string]netip.AddrPort{}}
	for i := range c.Gateways {
		g := &c.Gateways[i]
		var endpoints []model.DiscoveredEndpoint
		for _, source := range g.Endpoints {
			for _, a := range discoverAddrs(c, g, source, facts, resolved, live) {
				endpoints = append(endpoints, model.DiscoveredEndpoint{Source: source, Addr: a.Addr(), Port: int(a.Port())})
			}
		}
		if len(endpoints) > 0 {
			out.Discovered[g.Name] = endpoints[:min(len(endpoints), maxDiscovered)]
		}
	}
	for name, addr := range observed {
		remoteCluster, gateway, _ := strings.Cut(name, "/")
		remote := f.Cluster(remoteCluster)
		if remote == nil || remoteCluster == cluster {
			continue
		}
		if g := remote.Gateway(gateway); g != nil && slices.Contains(g.Endpoints, fabric.SourceObserved) {
			out.Observed[name] = addr
		}
	}
	switch {
	case len(out.Discovered) == 0 && len(out.Observed) == 0:
		return nil
	case len(out.Discovered) == 0:
		out.Discovered = nil
	case len(out.Observed) == 0:
		out.Observed = nil
	}
	return &out
}

// discoverAddrs returns the addresses of a local gateway from one source. It returns none if source
// is not the name of a source. Port 0 means the port of the gateway.
func discoverAddrs(c *fabric.Cluster, g *fabric.Gateway, source string, facts model.Facts, resolved map[string][]netip.Addr, live map[string]model.ClusterState) []netip.AddrPort {
	if source == fabric.SourceObserved {
		return observedByRemotes(c.Name+"/"+g.Name, live)
	}
	service := facts.GatewayService(g)
	if source == fabric.SourceLoadBalancer && service != nil {
		return withoutPort(service.LoadBalancerAddrs(resolved))
	}
	i := slices.IndexFunc(facts.Nodes, func(n model.Node) bool { return n.Name == g.Node })
	if i < 0 {
		return nil // no node is the holder of the gateway
	}
	switch source {
	case fabric.SourceExternalIP:
		return withoutPort(facts.Nodes[i].External)
	case fabric.SourceInternalIP:
		return withoutPort(facts.Nodes[i].Addrs)
	case fabric.SourceNodePort:
		if service == nil {
			return nil
		}
		// Every node forwards a NodePort. The node of the gateway comes first, because it
		// depends on no other node.
		var out []netip.Addr
		for _, n := range slices.Concat(facts.Nodes[i:i+1], facts.Nodes[:i], facts.Nodes[i+1:]) {
			if len(n.External) > 0 {
				out = append(out, n.External...)
			} else {
				out = append(out, n.Addrs...)
			}
		}
		return withoutPort(out)
	}
	return nil
}

func withoutPort(addrs []netip.Addr) []netip.AddrPort {
	out := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a, 0)
	}
	return out
}

// observedByRemotes returns the addresses from which remote clusters receive packets of a gateway.
// The address that most clusters observe comes first.
func observedByRemotes(name string, live map[string]model.ClusterState) []netip.AddrPort {
	count := map[netip.AddrPort]int{}
	for _, state := range live {
		if state.Endpoints != nil && state.Endpoints.Observed[name].IsValid() {
			count[state.Endpoints.Observed[name]]++
		}
	}
	out := slices.SortedFunc(maps.Keys(count), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), a.Compare(b))
	})
	return out[:min(len(out), maxObserved)]
}
