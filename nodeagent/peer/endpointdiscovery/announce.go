package endpointdiscovery

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// mostSeen is how many of the places count where others see one gateway.
const mostSeen = 2

// ObservedAddrs is from where this node receives what gateways of other clusters send, by
// cluster/gateway.
type ObservedAddrs map[string]netip.AddrPort

// BuildAdvert gives what a cluster tells others of places: where its own gateways are reached,
// as far as that is found, and from where this node receives what those of others send, if
// they want to know; nil = nothing. resolved are the addresses of names (model.Local), and
// live is what others say, by cluster.
func BuildAdvert(f *fabric.Fabric, own string, facts model.Facts, resolved map[string][]netip.Addr, live map[string]model.ClusterState, seen ObservedAddrs) *model.EndpointAdvert {
	c := f.Cluster(own)
	if c == nil {
		return nil
	}
	out := &model.EndpointAdvert{}
	for i := range c.Gateways {
		g := &c.Gateways[i]
		var all []model.DiscoveredEndpoint
		for _, source := range g.Endpoints {
			for _, a := range placesOf(c, g, source, facts, resolved, live) {
				if len(all) < mostFound {
					all = append(all, model.DiscoveredEndpoint{Source: source, Addr: a.Addr(), Port: int(a.Port())})
				}
			}
		}
		if len(all) > 0 {
			if out.Discovered == nil {
				out.Discovered = map[string][]model.DiscoveredEndpoint{}
			}
			out.Discovered[g.Name] = all
		}
	}
	for name, at := range seen {
		cluster, gateway, _ := strings.Cut(name, "/")
		other := f.Cluster(cluster)
		if other == nil || cluster == own {
			continue
		}
		if g := other.Gateway(gateway); g != nil && slices.Contains(g.Endpoints, fabric.SourceObserved) {
			if out.Observed == nil {
				out.Observed = map[string]netip.AddrPort{}
			}
			out.Observed[name] = at
		}
	}
	if out.Discovered == nil && out.Observed == nil {
		return nil
	}
	return out
}

// placesOf gives where a gateway of this cluster is by a source. Port 0 is its own.
func placesOf(c *fabric.Cluster, g *fabric.Gateway, source string, facts model.Facts, resolved map[string][]netip.Addr, live map[string]model.ClusterState) []netip.AddrPort {
	if source == fabric.SourceObserved {
		return mostObserved(c.Name+"/"+g.Name, live)
	}
	service := facts.GatewayService(g)
	if source == fabric.SourceLoadBalancer && service != nil {
		return at(service.LoadBalancerAddrs(resolved), 0)
	}
	i := slices.IndexFunc(facts.Nodes, func(n model.Node) bool { return n.Name == g.Node })
	if i < 0 {
		return nil // nobody holds it now
	}
	switch source {
	case fabric.SourceExternalIP:
		return at(facts.Nodes[i].External, 0)
	case fabric.SourceInternalIP:
		return at(facts.Nodes[i].Addrs, 0)
	case fabric.SourceNodePort:
		if service != nil {
			// The nodes from this one on, each at the addresses that are for outside where it has
			// any.
			var out []netip.Addr
			for _, n := range slices.Concat(facts.Nodes[i:i+1], facts.Nodes[:i], facts.Nodes[i+1:]) {
				if len(n.External) > 0 {
					out = append(out, n.External...)
				} else {
					out = append(out, n.Addrs...)
				}
			}
			return at(out, 0)
		}
	}
	return nil
}

// LoadBalancerNames gives the names among the load balancers of a cluster's gateways, in lower case, to
// be looked up.
func LoadBalancerNames(own *fabric.Cluster, facts model.Facts) []string {
	var out []string
	for i := range own.Gateways {
		s := facts.GatewayService(&own.Gateways[i])
		if s == nil {
			continue
		}
		for _, text := range s.LoadBalancers {
			if _, err := netip.ParseAddr(text); err != nil && fabric.IsDomain(strings.ToLower(text)) {
				out = append(out, strings.ToLower(text))
			}
		}
	}
	return out
}

func at(addrs []netip.Addr, port int) []netip.AddrPort {
	out := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		out[i] = netip.AddrPortFrom(a, uint16(port))
	}
	return out
}

// mostObserved gives where other clusters see a gateway, those that most of them do first.
func mostObserved(name string, live map[string]model.ClusterState) []netip.AddrPort {
	count := map[netip.AddrPort]int{}
	for _, l := range live {
		if l.Endpoints != nil && l.Endpoints.Observed[name].IsValid() {
			count[l.Endpoints.Observed[name]]++
		}
	}
	out := slices.SortedFunc(maps.Keys(count), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), a.Compare(b))
	})
	return out[:min(len(out), mostSeen)]
}
