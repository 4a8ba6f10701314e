package projection

import (
	"net/netip"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// addReturnPaths routes packets from a tunnel or another gateway back to the node that handed their
// flow to this gateway (docs/adr/0013). That node translated the flow, and a pod network that
// delivers directly to pods would bypass it. Conntrack stores the node, so the rules find it
// without the pod prefixes of Node objects.
func (v *builder) addReturnPaths() {
	if v.gateway == nil || v.node == nil || !v.hasTunnels() {
		return
	}
	origin := clusterPath(v.self.Name)
	addReturnRule := func(link string, six bool, origin string) {
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleReturn, IPv6: six, IIF: link, Mark: desired.MarkReturn, Mask: desired.MaskReturn,
			Goto: desired.RuleReturnPath, Origin: origin,
		})
	}
	families := map[bool]bool{}
	for _, r := range slices.Clone(v.state.Rules) {
		if r.Table == desired.TableIn {
			families[r.IPv6] = true
			addReturnRule(r.IIF, r.IPv6, r.Origin)
		}
	}
	for six := range families {
		addReturnRule(desired.NodeDevice, six, origin)
		// A sibling may still return packets of a flow to this gateway after conntrack on
		// this node dropped the flow.
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleTunnel, IPv6: six, IIF: desired.NodeDevice, Table: desired.TableIn, Origin: origin,
		})
		// A flow that conntrack knows and that no other node handed over belongs to this
		// node, for any destination address.
		v.state.Rules = append(v.state.Rules, desired.ReturnRules(0, desired.TableMain, six, origin)...)
		// Fallback if the rules of a node do not exist yet.
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleReturnPathEnd, IPv6: six, Mark: desired.MarkReturn, Mask: desired.MaskReturn, Table: desired.TableMain, Origin: origin,
		})
	}
	for _, h := range v.returnPaths() {
		v.state.Rules = append(v.state.Rules, desired.ReturnRules(h.number, h.table(), h.family == 6, origin)...)
		v.elements.add(desired.Element{
			Set: desired.SetNodeMarks, Family: h.family, ID: desired.ReturnID(hardwareAddr(h.node)),
			Value: strconv.FormatUint(uint64(desired.ReturnMark(h.number)), 10), Origin: origin,
		})
	}
}

// routeReturnPaths adds a routing table for each node that may hand over flows. Its only route
// leads to that node.
func (v *builder) routeReturnPaths() {
	for _, h := range v.returnPaths() {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if h.family == 6 {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		v.route(desired.Route{
			Table: h.table(), Dst: all, Type: desired.RouteUnicast, Device: h.device, Via: h.via, Origin: clusterPath(v.self.Name),
		})
	}
}

// returnPath is the route from a gateway to another node of its cluster.
type returnPath struct {
	node   string
	number int // 1 to desired.MaxReturnNodes
	family int
	device string
	via    netip.Addr
}

func (h returnPath) table() int { return desired.TableReturnBase + h.number }

func (v *builder) returnPaths() []returnPath {
	var out []returnPath
	numbers := returnNumbers(v.nodes)
	for _, n := range v.nodes {
		number := numbers[n.Name]
		if n.Name == v.node.Name || number == 0 {
			continue
		}
		for _, fam := range []int{4, 6} {
			if device, via, ok := v.nodeHop(n, fam); ok && v.usesFamily(fam) {
				out = append(out, returnPath{n.Name, number, fam, device, via})
			}
		}
	}
	return out
}

// returnNumbers assigns each node a number from 1 to MaxReturnNodes, derived from its name, or
// the next free number. Conntrack does not store the number, so a changed number breaks no
// flow.
func returnNumbers(nodes []*model.Node) map[string]int {
	numbers, taken := make(map[string]int, len(nodes)), make(map[int]bool, len(nodes))
	for _, n := range nodes {
		if len(taken) == desired.MaxReturnNodes {
			break
		}
		slot := int(stablehash.Sum64(n.Name) % desired.MaxReturnNodes)
		for taken[slot] {
			slot = (slot + 1) % desired.MaxReturnNodes
		}
		taken[slot], numbers[n.Name] = true, slot+1
	}
	return numbers
}

// routeEndpoints routes packets from a tunnel to the nodes of the endpoints of this cluster's
// exports, according to their EndpointSlices. Node.spec.podCIDRs, which only some CNIs use, is
// the fallback for other pods.
func (v *builder) routeEndpoints() {
	for _, e := range v.exports {
		if e.ClusterPart(v.self.Name) == nil {
			continue
		}
		svc := v.services[e.ID()]
		if svc == nil {
			continue
		}
		for i := range svc.Endpoints {
			ep := &svc.Endpoints[i]
			node := v.nodeNamed(ep.Node)
			if node == nil {
				continue
			}
			for _, a := range v.usableAddrs(ep.Addrs) {
				inPodCIDRs := slices.ContainsFunc(node.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
				if inPodCIDRs || slices.Contains(node.Addrs, a) {
					continue
				}
				route := desired.Route{Table: desired.TableIn, Dst: cidr.Single(a), Type: desired.RouteThrow, Origin: exportPath(e.ID(), v.self.Name)}
				if node != v.node {
					device, via, ok := v.nodeHop(node, fabric.Family(a))
					if !ok {
						continue
					}
					route.Type, route.Device, route.Via = desired.RouteUnicast, device, via
				}
				v.route(route)
			}
		}
	}
}
