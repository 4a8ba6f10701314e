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

// addReturnPaths leads what comes out of a tunnel, or from another gateway, back to the node that
// handed its flow to this gateway (docs/adr/0013). That node translated the flow, and a
// network between nodes that delivers straight into pods would bring the answer past it.
// Conntrack keeps who it was; the rules find it, whatever Node objects say of where pods are.
func (v *builder) addReturnPaths() {
	if v.gateway == nil || v.node == nil || !v.hasTunnels() {
		return
	}
	origin := clusterPath(v.own.Name)
	from := func(link string, six bool, origin string) {
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleReturn, IPv6: six, IIF: link, Mark: desired.MarkHome, Mask: desired.MaskHome,
			Goto: desired.RuleHomes, Origin: origin,
		})
	}
	families := map[bool]bool{}
	for _, r := range slices.Clone(v.state.Rules) {
		if r.Table == desired.TableIn {
			families[r.IPv6] = true
			from(r.IIF, r.IPv6, r.Origin)
		}
	}
	for six := range families {
		from(desired.NodeDevice, six, origin)
		// Another gateway may know the flow by this one after this one forgot it.
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleTunnel, IPv6: six, IIF: desired.NodeDevice, Table: desired.TableIn, Origin: origin,
		})
		// What conntrack knows and nobody handed over is this node's own, whoever the
		// address is said to belong to.
		v.state.Rules = append(v.state.Rules, desired.HomeRules(0, desired.TableMain, six, origin)...)
		// Where the rules of a node are not there yet.
		v.state.Rules = append(v.state.Rules, desired.Rule{
			Priority: desired.RuleHomesEnd, IPv6: six, Mark: desired.MarkHome, Mask: desired.MaskHome, Table: desired.TableMain, Origin: origin,
		})
	}
	for _, h := range v.homes() {
		v.state.Rules = append(v.state.Rules, desired.HomeRules(h.number, h.table(), h.family == 6, origin)...)
		v.elements.add(desired.Element{
			Set: desired.SetHomes, Family: h.family, ID: desired.HomeID(hardwareAddr(h.node)),
			Value: strconv.FormatUint(uint64(desired.ReturnMark(h.number)), 10), Origin: origin,
		})
	}
}

// routeHomes gives each node that may hand over flows a table that leads to it.
func (v *builder) routeHomes() {
	for _, h := range v.homes() {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if h.family == 6 {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		v.route(desired.Route{
			Table: h.table(), Dst: all, Type: desired.RouteUnicast, Link: desired.NodeDevice, Via: h.via, Origin: clusterPath(v.own.Name),
		})
	}
}

// returnPath is how a gateway reaches another node of its cluster over NodeLink.
type returnPath struct {
	node   string
	number int // 1 to desired.MostHomes
	family int
	via    netip.Addr
}

func (h returnPath) table() int { return desired.TableReturnBase + h.number }

func (v *builder) homes() []returnPath {
	var out []returnPath
	numbers := homeNumbers(v.nodes)
	for _, n := range v.nodes {
		number := numbers[n.Name]
		if n.Name == v.node.Name || number == 0 {
			continue
		}
		for _, fam := range []int{4, 6} {
			if via, ok := v.hop(n, fam); ok && v.uses(fam) {
				out = append(out, returnPath{n.Name, number, fam, via})
			}
		}
	}
	return out
}

// homeNumbers gives each node a number from 1 to MostHomes that follows from its name,
// or the next free one. What conntrack keeps is no number, so one that changes, as
// another node came, harms no flow.
func homeNumbers(nodes []*model.Node) map[string]int {
	numbers, taken := make(map[string]int, len(nodes)), make(map[int]bool, len(nodes))
	for _, n := range nodes {
		if len(taken) == desired.MaxReturnNodes {
			break
		}
		at := int(stablehash.Sum64(n.Name) % desired.MaxReturnNodes)
		for taken[at] {
			at = (at + 1) % desired.MaxReturnNodes
		}
		taken[at], numbers[n.Name] = true, at+1
	}
	return numbers
}

// routeEndpoints leads what came out of a tunnel to the nodes that have the endpoints of
// this cluster's exports, as their EndpointSlices say. Node.spec.podCIDRs, which only
// some CNIs use, is asked for the pods of which nothing better is known.
func (v *builder) routeEndpoints() {
	for _, e := range v.exports {
		svc := v.services[e.ID()]
		if e.ClusterPart(v.own.Name) == nil || svc == nil {
			continue
		}
		for i := range svc.Endpoints {
			ep := &svc.Endpoints[i]
			node := v.nodeNamed(ep.Node)
			if node == nil {
				continue
			}
			for _, a := range v.used(ep.Addrs) {
				said := slices.ContainsFunc(node.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
				if said || slices.Contains(node.Addrs, a) {
					continue
				}
				route := desired.Route{Table: desired.TableIn, Dst: cidr.Single(a), Type: desired.RouteThrow, Origin: exportPath(e.ID(), v.own.Name)}
				if node != v.node {
					via, ok := v.hop(node, fabric.Family(a))
					if !ok {
						continue
					}
					route.Type, route.Link, route.Via = desired.RouteUnicast, desired.NodeDevice, via
				}
				v.route(route)
			}
		}
	}
}
