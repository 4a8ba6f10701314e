package nodeagent

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// probing is what the prober should do. It follows from fabric and facts alone.
type probing struct {
	gateway  string         // this node's gateway name; empty when it is none
	others   [][]netip.Addr // nodes of this cluster besides this one, each with its addresses
	targets  []health.Target
	listen   []health.Listen
	settings health.Settings
}

// probesOf decides whom this node probes: a gateway probes the gateways of all
// clusters that its own is linked to through the tunnels, and every node probes the other gateways
// of its own cluster over the VXLAN.
func probesOf(f *fabric.Fabric, before *fabric.Shape, nodes []project.Node, cluster, node string) probing {
	p := probing{settings: health.Settings{Interval: f.Health.Interval.Std(), Misses: f.Health.Misses}}
	own := f.Cluster(cluster)
	if own == nil {
		return p
	}
	if gateway := own.GatewayOn(node); gateway != nil {
		p.gateway = gateway.Name
		p.tunnels(f, project.NewNet(f, before), cluster, gateway.Addresses)
	}
	for _, n := range nodes {
		if n.Name != node {
			p.others = append(p.others, n.Addrs)
		}
	}
	p.neighbours(own, nodes, node)
	return p
}

func (p *probing) tunnels(f *fabric.Fabric, net project.Net, cluster string, own []netip.Addr) {
	for _, a := range own {
		p.listen = append(p.listen, health.Listen{Addr: a})
	}
	for _, c := range f.Clusters {
		if c.Name == cluster || !net.Linked(cluster, c.Name) {
			continue
		}
		for _, g := range c.Gateways {
			if source, addr, ok := sameFamily(own, g.Addresses); ok {
				p.targets = append(p.targets, health.Target{
					Peer: health.Peer{Cluster: c.Name, Gateway: g.Name}, Source: source, Addr: addr,
				})
			}
		}
	}
}

func (p *probing) neighbours(own *fabric.Cluster, nodes []project.Node, node string) {
	self := nodeAddrs(nodes, node)
	if p.gateway != "" {
		for _, a := range self {
			p.listen = append(p.listen, health.Listen{Addr: a, Device: desired.NodeLink})
		}
	}
	for _, g := range own.Gateways {
		source, addr, ok := sameFamily(self, nodeAddrs(nodes, g.Node))
		if g.Node == node || !ok {
			continue
		}
		p.targets = append(p.targets, health.Target{
			Peer:   health.Peer{Cluster: own.Name, Gateway: g.Name},
			Source: source, Addr: addr, Device: desired.NodeLink,
		})
	}
}

func nodeAddrs(nodes []project.Node, name string) []netip.Addr {
	i := slices.IndexFunc(nodes, func(n project.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return nodes[i].Addrs
}

// sameFamily gives the first pair of addresses that can talk to each other.
func sameFamily(own, remote []netip.Addr) (source, addr netip.Addr, ok bool) {
	for _, a := range own {
		for _, b := range remote {
			if a.Is4() == b.Is4() {
				return a, b, true
			}
		}
	}
	return netip.Addr{}, netip.Addr{}, false
}
