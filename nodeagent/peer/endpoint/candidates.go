// Package endpoint selects the address of each remote gateway.
//
// The cluster of a gateway advertises its discovered endpoints (BuildAdvert). Other clusters accept
// adverts within bounds (Registry) and append the endpoints to the configured ones (Candidates).
// The Selector selects one candidate for each gateway. While the link is down, it probes all
// candidates. While the link is up, it probes the candidates that precede the one in use.
//
// The package is pure: the time and all observations are arguments. The caller sends probes and
// changes tunnels.
package endpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Candidates returns the addresses of a gateway in order of preference. Configured addresses and
// names, in the order of the topology, precede discovered endpoints. resolved has the addresses of
// names, as in model.HostState. Endpoints without a port get port. Candidates omits addresses that
// usable rejects, and discovered endpoints that are also configured.
//
// VXLAN does not authenticate the peer, so only configured endpoints count there.
func Candidates(g *fabric.Gateway, driver string, port int, resolved map[string][]netip.Addr, discovered []model.DiscoveredEndpoint, usable func(netip.Addr) bool) []model.Candidate {
	var out []model.Candidate
	add := func(text string, a netip.Addr, endpointPort int) {
		if usable(a) {
			out = append(out, model.Candidate{Text: text, Addr: netip.AddrPortFrom(a, uint16(cmp.Or(endpointPort, port)))})
		}
	}
	for _, text := range g.Endpoints {
		e, err := fabric.ParseEndpoint(text)
		switch {
		case err != nil: // a source, or an entry of a newer version
		case e.Name == "":
			add(text, e.Addr, e.Port)
		default:
			for _, a := range resolved[fabric.Endpoint{Name: e.Name}.String()] {
				add(text, a, e.Port)
			}
		}
	}
	if driver == fabric.DriverVXLAN {
		return out
	}
	for _, d := range discovered {
		addr := netip.AddrPortFrom(d.Addr, uint16(cmp.Or(d.Port, port)))
		configured := func(c model.Candidate) bool { return c.Addr == addr }
		if slices.ContainsFunc(out, configured) {
			continue
		}
		text := addr.String()
		if int(addr.Port()) == port {
			text = addr.Addr().String()
		}
		add(text+" (found: "+d.Source+")", d.Addr, d.Port)
	}
	return out
}

// MayChange reports whether the addresses of a gateway may change without a commit, because its
// endpoints include a name or a source.
func MayChange(g *fabric.Gateway) bool {
	return slices.ContainsFunc(g.Endpoints, func(text string) bool {
		e, err := fabric.ParseEndpoint(text)
		return err == nil && e.Name != "" || fabric.IsEndpointSource(text)
	})
}

// HostNames returns the host names to resolve, sorted and in lower case. These are the names in
// endpoints of remote gateways and the names of load balancers of local gateways.
func HostNames(f *fabric.Fabric, cluster string, facts model.Facts) []string {
	var out []string
	for i := range f.Clusters {
		c := &f.Clusters[i]
		for j := range c.Gateways {
			if c.Name == cluster {
				out = append(out, loadBalancerNames(&c.Gateways[j], facts)...)
				continue
			}
			for _, text := range c.Gateways[j].Endpoints {
				if e, err := fabric.ParseEndpoint(text); err == nil && e.Name != "" {
					out = append(out, e.Name)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// loadBalancerNames returns the host names in the status of a gateway's Service.
func loadBalancerNames(g *fabric.Gateway, facts model.Facts) []string {
	service := facts.GatewayService(g)
	if service == nil {
		return nil
	}
	var out []string
	for _, text := range service.LoadBalancers {
		name := strings.ToLower(text)
		if _, err := netip.ParseAddr(text); err != nil && fabric.IsDomain(name) {
			out = append(out, name)
		}
	}
	return out
}
