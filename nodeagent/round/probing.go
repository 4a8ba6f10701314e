package round

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// ProbeSpec configures the prober. It depends only on fabric and facts.
type ProbeSpec struct {
	Gateway  string         // gateway on this node; empty = none
	Others   [][]netip.Addr // addresses of each other node of this cluster
	Targets  []health.Target
	Listen   []health.Listen
	Settings health.Settings
}

// probesOf returns the targets of this node. A gateway probes the gateways of all linked clusters through
// the tunnels. Every node probes the other gateways of its own cluster over the VXLAN.
func probesOf(f *fabric.Fabric, before *fabric.Shape, nodes []model.Node, cluster, node string) ProbeSpec {
	p := ProbeSpec{Settings: health.Settings{Interval: f.Health.Interval.Std(), Misses: f.Health.Misses}}
	own := f.Cluster(cluster)
	if own == nil {
		return p
	}
	if gateway := own.GatewayOn(node); gateway != nil {
		p.Gateway = gateway.Name
		p.tunnels(f, projection.NewNet(f, before), cluster, gateway.Addresses)
	}
	for _, n := range nodes {
		if n.Name != node {
			p.Others = append(p.Others, n.Addrs)
		}
	}
	p.neighbours(own, nodes, node)
	return p
}

func (p *ProbeSpec) tunnels(f *fabric.Fabric, net projection.Topology, cluster string, own []netip.Addr) {
	for _, a := range own {
		p.Listen = append(p.Listen, health.Listen{Addr: a})
	}
	for _, c := range f.Clusters {
		if c.Name == cluster || !net.Linked(cluster, c.Name) {
			continue
		}
		for _, g := range c.Gateways {
			if source, addr, ok := SameFamily(own, g.Addresses); ok {
				p.Targets = append(p.Targets, health.Target{
					Peer: health.GatewayID{Cluster: c.Name, Gateway: g.Name}, Source: source, Addr: addr,
				})
			}
		}
	}
}

func (p *ProbeSpec) neighbours(own *fabric.Cluster, nodes []model.Node, node string) {
	self := NodeAddrs(nodes, node)
	if p.Gateway != "" {
		for _, a := range self {
			p.Listen = append(p.Listen, health.Listen{Addr: a, Device: desired.NodeDevice})
		}
	}
	for _, g := range own.Gateways {
		source, addr, ok := SameFamily(self, NodeAddrs(nodes, g.Node))
		if g.Node == node || !ok {
			continue
		}
		p.Targets = append(p.Targets, health.Target{
			Peer:   health.GatewayID{Cluster: own.Name, Gateway: g.Name},
			Source: source, Addr: addr, Device: desired.NodeDevice,
		})
	}
}

// NodeAddrs returns the addresses of a node; nil if it does not exist.
func NodeAddrs(nodes []model.Node, name string) []netip.Addr {
	i := slices.IndexFunc(nodes, func(n model.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return nodes[i].Addrs
}

// SameFamily returns the first pair of addresses of one family.
func SameFamily(own, remote []netip.Addr) (source, addr netip.Addr, ok bool) {
	for _, a := range own {
		for _, b := range remote {
			if a.Is4() == b.Is4() {
				return a, b, true
			}
		}
	}
	return netip.Addr{}, netip.Addr{}, false
}
