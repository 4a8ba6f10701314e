package round

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/direct"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// directPairs returns the pairs of this node and another node that may exchange packets without
// VXLAN. It also returns the nodes that always need VXLAN. Exactly one node of each pair is a
// gateway. Two gateways use VXLAN, because each forwards packets of other nodes to the other
// gateway.
func directPairs(f *fabric.Fabric, facts model.Facts, local model.HostState, cluster, node string) (direct.Spec, []model.DirectNode) {
	spec := direct.Spec{Node: node, Interval: f.Health.Interval.Std(), Misses: f.Health.Misses}
	own := f.Cluster(cluster)
	if own == nil || !own.TestsDirect() {
		return spec, nil
	}
	endpoints := projection.NodeEndpoints(facts.Nodes)
	endpoint, known := endpoints[node]
	if !known {
		return spec, nil
	}
	var excluded []model.DirectNode
	gateway := own.GatewayOn(node) != nil
	spec.Gateway = gateway
	for i := range facts.Nodes {
		n := &facts.Nodes[i]
		remote, ok := endpoints[n.Name]
		if n.Name == node || !ok || (own.GatewayOn(n.Name) != nil) == gateway {
			continue
		}
		for _, a := range n.Addrs {
			family := fabric.Family(a)
			source := testSource(f, own, n, gateway, family)
			u := slices.IndexFunc(local.Underlay, func(u model.UnderlayAddr) bool { return fabric.Family(u.Addr) == family })
			if u < 0 || !source.IsValid() {
				continue
			}
			from := local.Underlay[u]
			if why := excludes(n, from, a); why != "" {
				excluded = append(excluded, model.DirectNode{Node: n.Name, Addr: a, Reason: why})
				continue
			}
			spec.Pairs = append(spec.Pairs, direct.Pair{
				Node: n.Name, Local: from.Addr, Remote: a, Device: from.Device, MAC: from.MAC, Source: source,
				VXLAN: direct.VXLAN{Local: endpoint, Remote: remote, LocalMAC: projection.NodeMAC(node), RemoteMAC: projection.NodeMAC(n.Name)},
			})
		}
	}
	return spec, excluded
}

// excludes returns the reason why packets to a node's address always need VXLAN; empty if test
// packets decide.
func excludes(n *model.Node, from model.UnderlayAddr, to netip.Addr) string {
	switch {
	case n.Unprotected:
		return "no agent has reported its rules on " + n.Name
	case from.Unsuitable != "":
		return from.Unsuitable
	case !slices.ContainsFunc(from.Networks, func(p netip.Prefix) bool { return p.Contains(to) }):
		return n.Name + " is behind a router"
	}
	return ""
}

// testSource returns the source address of test packets. A gateway uses an address of the other
// node's pods, because that node forwards packets with such sources. Other nodes use an address of
// another cluster. The address is the last but one of its prefix, which is not in use. It is
// invalid if the family has no prefix.
func testSource(f *fabric.Fabric, own *fabric.Cluster, n *model.Node, gateway bool, family int) netip.Addr {
	var prefixes []netip.Prefix
	if gateway {
		prefixes = slices.Concat(n.PodCIDRs, own.PodCIDRs)
	} else {
		for i := range f.Clusters {
			if f.Clusters[i].Name != own.Name {
				prefixes = append(prefixes, f.Clusters[i].GlobalCIDRs...) // rp_filter needs a route to it
			}
		}
	}
	i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return fabric.Family(p.Addr()) == family && p.Bits() < p.Addr().BitLen()-1 })
	if i < 0 {
		return netip.Addr{}
	}
	return cidr.Last(prefixes[i]).Prev()
}

// directNodes returns the states of pairs and the excluded nodes as input of the projection.
func directNodes(states []direct.State, excluded []model.DirectNode) []model.DirectNode {
	out := slices.Clone(excluded)
	for _, s := range states {
		d := model.DirectNode{Node: s.Node, Addr: s.Remote, Device: s.Device, MAC: s.MAC, Active: s.Sends}
		switch {
		case s.MAC == "":
			d.Reason = "the agent of " + s.Node + " does not test direct packets"
		case !s.Sends:
			d.Reason = s.Node + " receives no packets of pods that this node sends directly"
		}
		out = append(out, d)
	}
	return out
}

// updateDirect returns nodes with the current states of their pairs. It ignores pairs that nodes
// lacks, because the kernel does not have their elements yet. It returns nodes itself if no state
// differs.
func updateDirect(nodes []model.DirectNode, states []direct.State) []model.DirectNode {
	type pairID struct {
		node, device string
		addr         netip.Addr
	}
	sends := make(map[pairID]bool, len(states))
	for _, s := range states {
		sends[pairID{s.Node, s.Device, s.Remote}] = s.Sends
	}
	out := nodes
	for i, n := range nodes {
		if active := sends[pairID{n.Node, n.Device, n.Addr}]; n.Device != "" && active != n.Active {
			if &out[0] == &nodes[0] {
				out = slices.Clone(nodes)
			}
			out[i].Active = active
		}
	}
	return out
}

// directCache has the last result of updateDirect. An input that has not changed is the same slice.
type directCache struct {
	nodes, updated []model.DirectNode
	states         []direct.State
}

// update returns the result of updateDirect, from the cache if neither input changed.
func (c *directCache) update(nodes []model.DirectNode, states []direct.State) []model.DirectNode {
	if !sameSlice(c.nodes, nodes) || !sameSlice(c.states, states) {
		*c = directCache{nodes: nodes, states: states, updated: updateDirect(nodes, states)}
	}
	return c.updated
}

// sameSlice reports whether two slices share their elements.
func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// DirectSenders returns the hardware addresses from which the rules of this node accept direct
// packets after a round; nil if they are unknown.
func (p *Projection) DirectSenders(r converge.Report) map[string]bool {
	if !r.Clean() || p.Node == nil {
		return nil
	}
	return projection.DirectSenders(p.Input.Direct)
}
