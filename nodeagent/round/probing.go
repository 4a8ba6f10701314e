package round

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
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

// probingInput is the input of probesOf and pairConfigs.
type probingInput struct {
	cluster, node string
	fabric        *fabric.Fabric
	before        *fabric.Shape
	keys          *fabric.Keys
	nodes         []model.Node
	endpoints     map[string]model.RemoteEndpoint
}

func (a *probingInput) equal(b *probingInput) bool {
	return a.cluster == b.cluster && a.node == b.node && a.fabric == b.fabric && a.before == b.before && a.keys == b.keys &&
		maps.Equal(a.endpoints, b.endpoints) && reflect.DeepEqual(a.nodes, b.nodes)
}

// linksOf returns the targets and the pairs of this node. It returns the same slices while their
// input is unchanged.
func (c *cache) linksOf(in Observed, f *fabric.Fabric, before *fabric.Shape) (ProbeSpec, []migration.PairConfig) {
	next := probingInput{
		cluster: in.Cluster, node: in.Node, fabric: f, before: before, keys: in.Keys, nodes: in.Facts.Nodes, endpoints: in.Peers.RemoteEndpoints,
	}
	if !next.equal(&c.links) {
		c.links, c.probing = next, probesOf(f, before, in.Facts.Nodes, in.Cluster, in.Node)
		c.pairs = pairConfigs(in, f, c.probing, in.Peers.RemoteEndpoints)
	}
	return c.probing, c.pairs
}

// probesOf returns the targets of this node. A gateway probes the gateways of all linked clusters
// through the tunnels. Every node probes the other gateways of its own cluster over NodeDevice.
func probesOf(f *fabric.Fabric, before *fabric.Shape, nodes []model.Node, cluster, node string) ProbeSpec {
	p := ProbeSpec{Settings: health.Settings{Interval: f.Health.Interval.Std(), Misses: f.Health.Misses}}
	own := f.Cluster(cluster)
	if own == nil {
		return p
	}
	if gateway := own.GatewayOn(node); gateway != nil {
		p.Gateway = gateway.Name
		p.tunnels(f, projection.NewGraph(f, before), cluster, gateway.Addresses)
	}
	for _, n := range nodes {
		if n.Name != node {
			p.Others = append(p.Others, n.Addrs)
		}
	}
	p.neighbors(own, nodes, node)
	return p
}

func (p *ProbeSpec) tunnels(f *fabric.Fabric, graph projection.Graph, cluster string, own []netip.Addr) {
	for _, a := range own {
		p.Listen = append(p.Listen, health.Listen{Addr: a})
	}
	for _, c := range f.Clusters {
		if c.Name == cluster || !graph.Linked(cluster, c.Name) {
			continue
		}
		for _, g := range c.Gateways {
			if source, addr, ok := FirstCommonFamily(own, g.Addresses); ok {
				p.Targets = append(p.Targets, health.Target{
					Peer: health.GatewayID{Cluster: c.Name, Gateway: g.Name}, Source: source, Addr: addr,
				})
			}
		}
	}
}

func (p *ProbeSpec) neighbors(own *fabric.Cluster, nodes []model.Node, node string) {
	self := NodeAddrs(nodes, node)
	if p.Gateway != "" {
		for _, a := range self {
			p.Listen = append(p.Listen, health.Listen{Addr: a, Device: desired.NodeDevice})
		}
	}
	for _, g := range own.Gateways {
		source, addr, ok := FirstCommonFamily(self, NodeAddrs(nodes, g.Node))
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

// FirstCommonFamily returns the first pair of own and remote addresses in one family.
func FirstCommonFamily(own, remote []netip.Addr) (source, addr netip.Addr, ok bool) {
	for _, a := range own {
		for _, b := range remote {
			if a.Is4() == b.Is4() {
				return a, b, true
			}
		}
	}
	return netip.Addr{}, netip.Addr{}, false
}
