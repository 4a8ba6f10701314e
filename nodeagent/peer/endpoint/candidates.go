// Package endpoint selects the address of each remote gateway.
//
// A gateway's own cluster builds an advert of its discovered endpoints (BuildAdvert). Other
// clusters accept adverts within bounds (Registry) and put them behind the configured
// endpoints (Candidates). The Selector then picks one candidate for each gateway: it
// probes all of them while the link is down, and better ones while it is up.
//
// The package is pure: the time and all observations are arguments, and the caller sends
// probes and changes tunnels.
package endpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Candidates returns the addresses of a gateway in order of preference: configured addresses and
// names in the order of the topology, then discovered endpoints. resolved has the addresses of
// names, as in model.HostState. port is the gateway's port for endpoints without a port. Candidates
// omits addresses that usable rejects, and discovered endpoints that are also configured.
//
// VXLAN does not authenticate the peer, so only configured endpoints count there.
func Candidates(g *fabric.Gateway, driver string, port int, resolved map[string][]netip.Addr, discovered []model.DiscoveredEndpoint, usable func(netip.Addr) bool) []model.Candidate {
	var out []model.Candidate
	add := func(text string, a netip.Addr, own int) {
		if usable(a) {
			out = append(out, model.Candidate{Text: text, Addr: netip.AddrPortFrom(a, uint16(cmp.Or(own, port)))})
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
		at := netip.AddrPortFrom(d.Addr, uint16(cmp.Or(d.Port, port)))
		if slices.ContainsFunc(out, func(c model.Candidate) bool { return c.Addr == at }) {
			continue
		}
		text := at.String()
		if int(at.Port()) == port {
			text = at.Addr().String()
		}
		add(text+" (found: "+d.Source+")", d.Addr, d.Port)
	}
	return out
}

// MayChange reports whether the addresses of a gateway may change without a commit: it has
// a name or a source among its endpoints.
func MayChange(g *fabric.Gateway) bool {
	return slices.ContainsFunc(g.Endpoints, func(text string) bool {
		e, err := fabric.ParseEndpoint(text)
		return err == nil && e.Name != "" || fabric.IsEndpointSource(text)
	})
}

// Names returns the host names to resolve, sorted and in lower case: those among the
// endpoints of remote gateways, and the load balancers of own gateways.
func Names(f *fabric.Fabric, own string, facts model.Facts) []string {
	var out []string
	for i := range f.Clusters {
		c := &f.Clusters[i]
		for j := range c.Gateways {
			if c.Name == own {
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
