package nodeagent

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/cable"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// leads reports whether this end looks for better places. With VXLAN each end
// chooses for what it sends itself, with IPsec the one that opens connections, as
// long as there are addresses for a second one: none of held.
func leads(in project.Input, own *fabric.Gateway, r project.Reach, held map[netip.Addr]bool) bool {
	switch r.Driver {
	case fabric.DriverVXLAN:
		return true
	case fabric.DriverIPsec:
		return cable.Begins(in.Cluster, own, r.Cluster, r.Gateway) && twinsFree(in.Fabric.TunnelPools, held, own, r.Gateway)
	}
	return in.Cluster < r.Cluster || len(own.Endpoints) == 0
}

// twinsFree reports whether the second addresses of gateways are nobody's first.
func twinsFree(pools []netip.Prefix, held map[netip.Addr]bool, gateways ...*fabric.Gateway) bool {
	return !slices.ContainsFunc(gateways, func(g *fabric.Gateway) bool {
		return slices.ContainsFunc(g.Addresses, func(a netip.Addr) bool { return held[fabric.Twin(pools, a)] })
	})
}

// tunnelAddresses gives the first addresses of all gateways inside the tunnels.
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
