package projection

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// addRules adds the rule of TableOut for every packet. On a gateway, the rule of TableGateway
// precedes it: the gateway uses its own links for packets that other nodes hand over. So no packet
// is lost or loops while nodes disagree about the path.
func (v *builder) addRules() {
	v.addRule(desired.Rule{Priority: desired.RuleOut, Table: desired.TableOut, Origin: clusterPath(v.self.Name)})
	if v.gateway != nil && v.node != nil {
		v.addRule(desired.Rule{
			Priority: desired.RuleGateway, IIF: desired.NodeDevice, Table: desired.TableGateway, Origin: v.gatewayPath(),
		})
	}
}

// addRule adds a rule for each family that this node uses.
func (v *builder) addRule(r desired.Rule) {
	for _, fam := range []int{4, 6} {
		if r.IPv6 = fam == 6; v.usesFamily(fam) {
			v.state.Rules = append(v.state.Rules, r)
		}
	}
}

func (v *builder) addRoutes() {
	for _, r := range v.remotes {
		v.routeRemote(r)
		v.routeGateway(r)
	}
	v.routePools()
	v.routeBound()
	if v.gateway != nil {
		v.routeTunnels()
		v.routeTransit()
		v.routeNodes()
	}
}

func (v *builder) route(r desired.Route) { v.state.Routes = append(v.state.Routes, r) }

func (v *builder) blackhole(dst netip.Prefix, origin string) {
	v.route(desired.Route{Table: desired.TableOut, Dst: dst.Masked(), Type: desired.RouteBlackhole, Origin: origin})
}

// source returns the source address of the host's own packets. In a flat cluster it is in the pod
// prefixes, so that other clusters can reply. Otherwise it is the node's address, which the gateway
// translates.
func (v *builder) source(fam int) netip.Addr {
	if !v.self.IsGlobalnet(fam) {
		if a, ok := ofFamily(v.in.Local.HostSource, fam); ok {
			return a
		}
	}
	if v.node == nil {
		return netip.Addr{}
	}
	a, _ := ofFamily(v.node.Addrs, fam)
	return a
}

// routeRemote routes the prefixes of a cluster. Without a path it adds blackhole routes: the
// default route would send the packets unencrypted, and conntrack would keep the NAT of that route
// for the flow.
func (v *builder) routeRemote(r *remoteCluster) {
	origin := clusterPath(r.Name)
	v.routeConnected(r)
	for _, p := range r.destinations {
		if slices.ContainsFunc(r.connected, func(n model.Network) bool { return n.Prefix == p }) {
			continue
		}
		link, via, ok := v.nextHop(r, fabric.Family(p.Addr()))
		if !ok {
			v.blackhole(p, origin)
			continue
		}
		v.route(desired.Route{
			Table: desired.TableOut, Dst: p, Type: desired.RouteUnicast, Device: link, Via: via,
			Src: v.source(fabric.Family(p.Addr())), MTU: v.routeMTU(r, link), Origin: origin,
		})
	}
}

// routeGateway routes traffic that other nodes hand to this gateway over its own link, even if the
// link is down. Without a link it drops the traffic. If it handed the traffic to a sibling, packets
// could loop, and conntrack would keep the flow without its egress address. When the link is up
// again, that entry conflicts with the entry on the remote gateway. The kernel then changes the
// source port.
func (v *builder) routeGateway(r *remoteCluster) {
	if v.gateway == nil || v.node == nil || !r.hasLink && v.isPathGateway(r) {
		return // no rule uses TableGateway, or TableOut has the routes
	}
	var c desired.Tunnel
	ok := false
	if r.hasLink {
		c, ok = v.ownTunnelTo(r, r.ownPath)
	}
	for _, p := range r.destinations {
		route := desired.Route{Table: desired.TableGateway, Dst: p, Type: desired.RouteBlackhole, Origin: clusterPath(r.Name)}
		if ok {
			route.Type, route.Device, route.Via = desired.RouteUnicast, c.Device, c.Via(fabric.Family(p.Addr()))
			if route.MTU = v.pathMTUFor(r, c.Device, r.ownPath); r.ownPath.Via != "" {
				route.MTU = v.transitMTU(c, r.ownPath)
			}
		}
		v.route(route)
	}
}

// ownTunnelTo returns the tunnel of one of this gateway's own links.
func (v *builder) ownTunnelTo(r *remoteCluster, p model.Path) (desired.Tunnel, bool) {
	if p.Via != "" {
		return v.transitTunnel(r, p)
	}
	return v.tunnelTo(r, p.Remote)
}

// routeMTU returns the MTU of the route to a remote cluster; 0 = MTU of the device.
func (v *builder) routeMTU(r *remoteCluster, link string) int {
	if r.path.Via == "" {
		return v.pathMTUFor(r, link, r.path)
	}
	if !strings.HasPrefix(link, desired.DevicePrefix) {
		return v.largestMTU()
	}
	if c, ok := v.transitTunnel(r, r.path); ok && v.isPathGateway(r) {
		return v.transitMTU(c, r.path)
	}
	return 0 // the gateway reports the path MTU
}

// nextHop returns the device and the next hop to a remote cluster. The gateway of the active link
// uses its tunnel. Every other node, including siblings, sends to that gateway.
func (v *builder) nextHop(r *remoteCluster, fam int) (link string, via netip.Addr, ok bool) {
	if !r.reachable {
		return "", netip.Addr{}, false
	}
	if v.isPathGateway(r) {
		c, ok := v.ownTunnelTo(r, r.path)
		return c.Device, c.Via(fam), ok
	}
	node := v.nodeNamed(v.self.Gateway(r.path.Local).Node)
	if node == nil {
		v.problem(clusterPath(v.self.Name)+".gateways["+r.path.Local+"]", status.NodeUnknown,
			"its node is not among the nodes of the cluster")
		return "", netip.Addr{}, false
	}
	if v.node == nil {
		return "", netip.Addr{}, false
	}
	link, via, ok = v.nodeHop(node, fam)
	if !ok {
		v.problem(clusterPath(v.self.Name)+".gateways["+r.path.Local+"]", status.NoNextHop,
			"node "+node.Name+" has no address of the family of "+r.Name+"'s prefixes")
	}
	return link, via, ok
}

// routePools adds routes for the host's own packets to clusterset IPs and own exports. The kernel
// looks up a route before the output chain changes the destination. routePools also adds a
// blackhole route for the global block, which drops untranslated packets without a reply. An ICMP
// error or a reset would end a connection that a sibling still serves.
func (v *builder) routePools() {
	if v.node != nil {
		for _, p := range v.in.Fabric.ServicePools {
			if v.usesFamily(fabric.Family(p.Addr())) {
				v.routeHost(p.Masked(), "services")
			}
		}
		for _, e := range v.exports {
			part := e.ClusterPart(v.self.Name)
			if part == nil {
				continue
			}
			if ready, _ := serving(e, part, v.services[e.ID()]); ready {
				for _, a := range v.usableAddrs(part.IPs) {
					v.routeHost(cidr.Single(a), exportPath(e.ID(), v.self.Name))
				}
			}
		}
	}
	for _, p := range v.self.GlobalCIDRs {
		if !v.usesFamily(fabric.Family(p.Addr())) {
			continue
		}
		v.blackhole(p, clusterPath(v.self.Name)+".globalCIDR")
	}
}

func (v *builder) routeHost(dst netip.Prefix, origin string) {
	v.route(desired.Route{
		Table: desired.TableOut, Dst: dst, Type: desired.RouteUnicast, Device: desired.NodeDevice,
		Src: v.source(fabric.Family(dst.Addr())), Origin: origin,
	})
}

// routeTunnels routes the addresses of remote gateways for probes and the feed. Sockets that are
// bound to the device of an inactive tunnel use an additional route over it.
func (v *builder) routeTunnels() {
	// While the IPv6 route of a packet is briefly missing, the kernel must not find a route of
	// another table. It would cache that route (dst_cache, per CPU) for later packets until
	// that table changes. For IPv4 any route change invalidates the cache.
	for _, p := range v.in.Fabric.TunnelPools {
		if p.Addr().Is6() && v.usesFamily(6) && v.hasTunnels() {
			v.blackhole(p, "tunnel.ipv6Cidr")
		}
	}
	for _, r := range v.remotes {
		if !r.linked || r.viaTransit() {
			v.routeTunnelAddrs(r)
		}
		if !r.linked {
			continue
		}
		for i := range r.Gateways {
			g := &r.Gateways[i]
			for n, link := range v.devicesTo(r, g.Name) {
				metric := 0
				if n > 0 {
					metric = desired.MetricTunnel + n
				}
				for _, a := range v.usableAddrs(g.Addresses) {
					src, _ := ofFamily(v.gateway.Addresses, fabric.Family(a))
					v.route(desired.Route{
						Table: desired.TableOut, Dst: cidr.Single(a), Type: desired.RouteUnicast, Device: link, Src: src, Metric: metric,
						Origin: clusterPath(r.Name) + ".gateways[" + g.Name + "]",
					})
				}
			}
		}
	}
}

// routeNodes routes packets from a tunnel to the pod's node, bypassing the CNI, which may drop
// unknown sources.
func (v *builder) routeNodes() {
	if v.node == nil || !v.hasTunnels() {
		return
	}
	v.routeEndpoints()
	v.routeReturnPaths()
	origin := clusterPath(v.self.Name)
	for _, n := range v.nodes {
		if n.Name == v.node.Name {
			continue
		}
		for _, p := range n.PodCIDRs {
			if !v.usesFamily(fabric.Family(p.Addr())) {
				continue
			}
			device, via, ok := v.nodeHop(n, fabric.Family(p.Addr()))
			if !ok {
				v.problem(origin, status.NoNextHop, "node "+n.Name+" has no address of the family of its pods "+p.String())
				continue
			}
			v.route(desired.Route{
				Table: desired.TableIn, Dst: p.Masked(), Type: desired.RouteUnicast, Device: device, Via: via, Origin: origin,
			})
		}
		for _, a := range v.usableAddrs(n.Addrs) {
			device, via, _ := v.nodeHop(n, fabric.Family(a))
			v.route(desired.Route{
				Table: desired.TableIn, Dst: cidr.Single(a), Type: desired.RouteUnicast, Device: device, Via: via, Origin: origin,
			})
		}
	}
}

// routeBound adds routes to the nodes' IPv6 addresses for sockets that are bound to NodeDevice.
// Without a route the kernel rejects IPv6 destinations, although it treats IPv4 destinations as
// on-link. The rule matches no packet of any other socket.
func (v *builder) routeBound() {
	if v.node == nil || !v.v6 {
		return
	}
	if _, ok := ofFamily(v.node.Addrs, 6); !ok {
		return
	}
	origin := clusterPath(v.self.Name)
	v.state.Rules = append(v.state.Rules, desired.Rule{
		Priority: desired.RuleBound, IPv6: true, OIF: desired.NodeDevice, Table: desired.TableBound, Origin: origin,
	})
	for _, n := range v.nodes {
		if a, ok := ofFamily(n.Addrs, 6); ok && n.Name != v.node.Name {
			v.route(desired.Route{
				Table: desired.TableBound, Dst: cidr.Single(a), Type: desired.RouteUnicast, Device: desired.NodeDevice, Origin: origin,
			})
		}
	}
}

// usableAddrs returns the addresses whose family this node uses.
func (v *builder) usableAddrs(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !v.usesFamily(fabric.Family(a)) })
}
