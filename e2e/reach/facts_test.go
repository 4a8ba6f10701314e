package reach

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Short names of schema/fabric/reach.
type (
	Point   = reach.Point
	Packet  = reach.Packet
	Verdict = reach.Verdict
)

const (
	Tunnel   = reach.Tunnel
	Pod      = reach.Pod
	Node     = reach.Node
	Neighbor = reach.Neighbor
	Service  = reach.Service
	Dropped  = reach.Dropped
	Host     = reach.Host
)

// backends converts a gateway's facts for package reach.
func backends(facts model.Facts) reach.Backends {
	out := reach.Backends{}
	for _, svc := range facts.Services {
		for _, ep := range svc.Endpoints {
			id := svc.Namespace + "/" + svc.Name
			out[id] = append(out[id], reach.Backend{Addrs: ep.Addrs, Hostname: ep.Hostname, Ready: ep.Ready, Ports: ep.Ports})
		}
	}
	return out
}

// sends reports whether a cluster's packets may come from an address.
func (w *world) sends(c *fabric.Cluster, a netip.Addr) bool {
	return inAny(c.GlobalCIDRs, a) || slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) && w.seen(c, p) })
}

// seen reports whether the own cluster reaches a prefix of another cluster without translation.
func (w *world) seen(c *fabric.Cluster, p netip.Prefix) bool {
	me := w.fabric.Cluster(own)
	return !c.IsGlobalnet(fabric.Family(p.Addr())) && !slices.ContainsFunc(slices.Concat(me.PodCIDRs, me.ServiceCIDRs), p.Overlaps)
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// moved replaces the prefix of an address and keeps its host part.
func moved(a netip.Addr, to netip.Prefix) netip.Addr {
	from, net := a.AsSlice(), to.Addr().AsSlice()
	for bit := range to.Bits() {
		mask := byte(0x80 >> (bit % 8))
		from[bit/8] = from[bit/8]&^mask | net[bit/8]&mask
	}
	out, _ := netip.AddrFromSlice(from)
	return out
}
