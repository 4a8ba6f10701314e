package project

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// addEveryNode fills the sets that each node needs, gateway or not.
func (v *view) addEveryNode() {
	for _, p := range disjoint(v.in.Fabric.ServicePools) {
		v.elements.prefix(desired.SetPools, p, netip.Prefix{}, "services.cidr")
	}
	for _, p := range disjoint(v.in.Fabric.TunnelPools) {
		v.elements.prefix(desired.SetRemote, p, netip.Prefix{}, "tunnel.cidr")
	}
	for _, r := range v.remotes {
		for _, p := range r.visible {
			v.elements.prefix(desired.SetRemote, p, netip.Prefix{}, clusterPath(r.Name))
		}
	}
	for _, p := range disjoint(v.own.GlobalCIDRs) {
		v.elements.prefix(desired.SetBlocks, p, netip.Prefix{}, clusterPath(v.own.Name)+".globalCIDR")
	}
	for _, n := range v.nodes {
		for _, a := range n.Addrs {
			v.elements.addr(desired.SetNodes, a, netip.Addr{}, clusterPath(v.own.Name))
		}
	}
	for _, e := range v.exports {
		for i := range e.Clusters {
			if part := &e.Clusters[i]; v.byName[part.Name] != nil {
				for _, a := range part.IPs {
					v.elements.addr(desired.SetFronts, a, netip.Addr{}, exportPath(e.ID(), part.Name))
				}
			}
		}
	}
}

// addFilter says, on a gateway, what may come in from the tunnels.
func (v *view) addFilter() {
	all := append(append([]netip.Prefix(nil), v.own.PodCIDRs...), v.own.ServiceCIDRs...)
	for _, p := range disjoint(all) {
		if !v.own.Hides(family(p.Addr())) {
			v.elements.prefix(desired.SetDirect, p, netip.Prefix{}, clusterPath(v.own.Name))
		}
	}
	for _, e := range v.exports {
		if part := exportPart(e, v.own.Name); part != nil {
			v.restrict(e, part)
			v.admitMapped(e, part)
		}
		v.addOffers(e)
	}
}

// restrict writes an export's allow list. The clusterset addresses are closed
// altogether: an honest cluster has translated them before the tunnel, and one
// that did not would reach the backends past the list.
func (v *view) restrict(e *fabric.Export, part *fabric.ExportCluster) {
	if e.Allow == nil {
		return
	}
	origin := exportPath(e.ID(), v.own.Name)
	addrs := append([]netip.Addr(nil), part.IPs...)
	for _, h := range part.Hosts {
		addrs = append(addrs, h.IPs...)
	}
	for _, a := range addrs {
		v.elements.addr(desired.SetRestricted, a, netip.Addr{}, origin)
		v.admit(e, a, origin)
	}
	for _, a := range e.VIPs {
		v.elements.addr(desired.SetRestricted, a, netip.Addr{}, origin)
	}
}

// admit lets the sources of every cluster that may reach an export reach one of
// its addresses.
func (v *view) admit(e *fabric.Export, addr netip.Addr, origin string) {
	for _, r := range v.remotes {
		if !e.Allows(r.Name) {
			continue
		}
		for _, p := range r.sources {
			if family(p.Addr()) == family(addr) {
				v.elements.add(desired.Element{
					Set: desired.SetAllowed, Family: family(addr), ID: prefixText(p) + " . " + addr.String(), Origin: origin,
				})
			}
		}
	}
}

// admitMapped opens the mapped address of each headless pod that has no fixed
// one: it is what others are told, and only answers get in otherwise.
func (v *view) admitMapped(e *fabric.Export, part *fabric.ExportCluster) {
	if e.Type != fabric.Headless || !v.own.Globalnet {
		return
	}
	for _, m := range members(part, v.services[e.ID()]) {
		if m.host != nil {
			continue
		}
		for _, a := range v.mappedAddrs(m.Addrs) {
			v.admit(e, a, exportPath(e.ID(), v.own.Name))
		}
	}
}

// addOffers names the addresses from which other clusters' servers answer.
func (v *view) addOffers(e *fabric.Export) {
	for i := range e.Clusters {
		part := &e.Clusters[i]
		r := v.byName[part.Name]
		if r == nil {
			continue
		}
		origin := exportPath(e.ID(), part.Name)
		offer := func(addrs []netip.Addr) {
			for _, a := range addrs {
				v.elements.addr(desired.SetOffers, a, netip.Addr{}, origin)
			}
		}
		offer(part.IPs)
		for _, h := range part.Hosts {
			offer(h.IPs)
		}
		for _, h := range r.hosts(e, part) {
			offer(h.IPs)
		}
	}
}
