package projection

import (
	"maps"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// addTransit adds the devices and rules for transit traffic on gateways, unless the shape is a
// mesh. VXLAN over the tunnels leads to gateways of neighbouring clusters. SiblingDevice leads to
// the other gateways of this cluster.
func (v *builder) addTransit() {
	if v.gateway == nil || v.graph.Mesh() {
		return
	}
	built := driver.Transit(v.localGateway(), v.transitRemotes())
	v.merge(&built)
	v.transitTunnels = built.Tunnels
	for _, l := range built.Devices {
		priority := desired.RuleTransit4 // a rule is identified by its priority
		if l.Name[len(desired.TransitDevicePrefix)] == '6' {
			priority = desired.RuleTransit6
		}
		v.addRule(desired.Rule{Priority: priority, IIF: l.Name, Table: desired.TableTransit, Origin: v.gatewayPath()})
	}
	v.addSiblingDevice()
	v.addNoTrack()
}

// transitRemotes returns the gateways of neighbouring clusters with the allowed sources of their
// packets: their own cluster and, if it forwards transit traffic, the clusters behind it.
func (v *builder) transitRemotes() []driver.Remote {
	var out []driver.Remote
	for _, r := range v.remotes {
		if !r.linked {
			continue
		}
		prefixes := v.prefixesOf(v.graph.Sources(v.self.Name, r.Name), func(r *remoteCluster) []netip.Prefix { return r.sources })
		for i := range r.Gateways {
			g := &r.Gateways[i]
			// The MTU of the link, minus the overhead of transit.
			mtu := v.mtu(r, r.link.Driver)
			if c, ok := v.tunnelTo(r, g.Name); ok {
				mtu = c.MTU
			}
			mtu = v.linkMTU(mtu - driver.TransitOverhead(v.gateway.Addresses, g.Addresses))
			out = append(out, driver.Remote{Cluster: r.Name, Gateway: g, Link: r.link, MTU: mtu, Prefixes: prefixes})
			v.addSplitHorizon(r, g.Addresses)
		}
	}
	return out
}

// addSplitHorizon drops packets from a neighbouring cluster to clusters that are reached only
// through that neighbour.
func (v *builder) addSplitHorizon(r *remoteCluster, from []netip.Addr) {
	if !v.graph.ForwardsTransit(v.self.Name) {
		return
	}
	for _, p := range v.prefixesOf(v.graph.OnlyVia(v.self.Name, r.Name), func(r *remoteCluster) []netip.Prefix { return r.destinations }) {
		set := desired.SetSplitHorizon4
		if p.Addr().Is6() {
			set = desired.SetSplitHorizon6
		}
		for _, a := range from {
			v.elements.add(desired.Element{
				Set: set, Family: fabric.Family(a), ID: a.String() + " . " + cidr.Format(p), Origin: clusterPath(r.Name),
			})
		}
	}
}

// prefixesOf returns prefixes of some clusters, and the tunnel addresses of their gateways.
func (v *builder) prefixesOf(clusters map[string]bool, of func(*remoteCluster) []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		if r := v.byName[name]; r != nil {
			out = append(append(out, of(r)...), r.tunnelAddrs()...)
		}
	}
	return disjoint(out)
}

// tunnelAddrs returns the tunnel addresses of a cluster's gateways.
func (r *remoteCluster) tunnelAddrs() []netip.Prefix {
	var out []netip.Prefix
	for i := range r.Gateways {
		for _, a := range r.Gateways[i].Addresses {
			out = append(out, cidr.Single(a))
		}
	}
	return out
}

// sibling is another gateway of this cluster.
type sibling struct {
	node    *model.Node
	gateway string
	addrs   []netip.Addr // tunnel addresses
}

func (v *builder) siblings() []sibling {
	var out []sibling
	for i := range v.self.Gateways {
		g := &v.self.Gateways[i]
		if node := v.nodeNamed(g.Node); g.Name != v.gateway.Name && node != nil {
			out = append(out, sibling{node: node, gateway: g.Name, addrs: g.Addresses})
		}
	}
	return out
}

// addSiblingDevice adds the VXLAN device for transit traffic between the gateways of this cluster.
// It is separate from NodeDevice: its packets must leave over a link of this gateway, which never
// hands them over again.
func (v *builder) addSiblingDevice() {
	if v.node == nil {
		return
	}
	local, ok := v.underlay(v.node)
	siblings := v.siblings()
	if !ok || len(siblings) == 0 {
		return
	}
	over := vxlanOver4
	if local.Is6() {
		over = vxlanOver6
	}
	v.state.Devices = append(v.state.Devices, desired.Device{
		Name: desired.SiblingDevice, Type: desired.DeviceVXLAN, MTU: v.linkMTU(v.underlayMTU() - over), Up: true,
		MAC: hardwareAddr(v.node.Name), VNI: desired.TransitVNI, Port: desired.VXLANPort, Local: local, Origin: v.gatewayPath(),
	})
	if v.v4 {
		v.state.Sysctls = append(v.state.Sysctls, desired.Sysctl{
			Name: "net/ipv4/conf/" + desired.SiblingDevice + "/rp_filter", Value: "2", Origin: v.gatewayPath(),
		})
	}
	// With reverse path filtering, even loose, the kernel drops IPv4 packets from a device without
	// an address.
	for _, a := range v.gateway.Addresses {
		v.state.Addresses = append(v.state.Addresses, desired.Address{
			Device: desired.SiblingDevice, Prefix: cidr.Single(a), Scope: "global", Origin: v.gatewayPath(),
		})
	}
	for _, m := range siblings {
		v.addNeighbors(desired.SiblingDevice, m.node, v.gatewayPath())
		for _, a := range m.node.Addrs {
			v.elements.addr(desired.SetSiblings, a, netip.Addr{}, v.gatewayPath())
		}
	}
	v.addRule(desired.Rule{Priority: desired.RuleSibling, IIF: desired.SiblingDevice, Table: desired.TableSibling, Origin: v.gatewayPath()})
}

// addNoTrack adds the prefixes that this gateway forwards without connection tracking: the tunnel
// addresses of its siblings and, if this cluster forwards transit traffic, the other clusters.
func (v *builder) addNoTrack() {
	add := func(p netip.Prefix, origin string) {
		v.elements.prefix(desired.SetNoTrack, p, netip.Prefix{}, origin)
	}
	for _, m := range v.siblings() {
		for _, a := range m.addrs {
			add(cidr.Single(a), clusterPath(v.self.Name))
		}
	}
	if !v.graph.ForwardsTransit(v.self.Name) {
		return
	}
	for _, r := range v.remotes {
		for _, p := range append(r.tunnelAddrs(), r.destinations...) {
			add(p, clusterPath(r.Name))
		}
	}
}

// transitTunnel returns the transit tunnel to the next gateway of a path.
func (v *builder) transitTunnel(r *remoteCluster, p model.Path) (desired.Tunnel, bool) {
	next := p.Next(r.Name)
	i := slices.IndexFunc(v.transitTunnels, func(c desired.Tunnel) bool { return c.Cluster == next && c.Gateway == p.Remote })
	if i < 0 {
		return desired.Tunnel{}, false
	}
	return v.transitTunnels[i], true
}

// transitMTU returns the MTU of a transit route over a tunnel: the path's MTU without the overhead
// of transit; 0 = MTU of the device.
func (v *builder) transitMTU(c desired.Tunnel, p model.Path) int {
	mtu := c.MTU
	if p.MTU > 0 {
		mtu = v.linkMTU(min(mtu, p.MTU-driver.TransitOverhead(v.gateway.Addresses, []netip.Addr{c.Endpoint.Addr()})))
	}
	i := slices.IndexFunc(v.state.Devices, func(l desired.Device) bool { return l.Name == c.Device })
	if i >= 0 && v.state.Devices[i].MTU <= mtu {
		return 0
	}
	return mtu
}

// routeTransit routes packets from transit devices and SiblingDevice. The packets leave over the
// path that this cluster uses to the destination and thus reach the gateway that sends the replies.
// If a sibling has that path, this gateway hands the packets over. The sibling sends them over a
// link or drops them, so packets never loop.
func (v *builder) routeTransit() {
	if v.gateway == nil || v.graph.Mesh() || v.node == nil {
		return
	}
	for _, m := range v.siblings() {
		for _, a := range m.addrs {
			if via, ok := v.vxlanHop(m.node, fabric.Family(a)); ok {
				v.route(desired.Route{
					Table: desired.TableTransit, Dst: cidr.Single(a), Type: desired.RouteUnicast, Device: desired.SiblingDevice, Via: via,
					Origin: clusterPath(v.self.Name),
				})
			}
		}
	}
	forwards := v.graph.ForwardsTransit(v.self.Name)
	for _, r := range v.remotes {
		for _, p := range r.tunnelAddrs() {
			v.routeTransitTo(r, p, forwards)
		}
		for _, p := range r.destinations {
			v.routeTransitTo(r, p, forwards)
		}
	}
}

func (v *builder) routeTransitTo(r *remoteCluster, dst netip.Prefix, forwards bool) {
	fam := fabric.Family(dst.Addr())
	route := desired.Route{Table: desired.TableSibling, Dst: dst, Type: desired.RouteBlackhole, Origin: clusterPath(r.Name)}
	if c, ok := v.transitTunnel(r, r.ownPath); ok && r.hasLink {
		route.Type, route.Device, route.Via, route.MTU = desired.RouteUnicast, c.Device, c.Via(fam), v.transitMTU(c, r.ownPath)
	}
	v.route(route)
	if !forwards {
		return
	}
	route.Table = desired.TableTransit
	if via, ok := v.siblingHop(r, fam); ok {
		route.Type, route.Device, route.Via, route.MTU = desired.RouteUnicast, desired.SiblingDevice, via, 0
	} else if c, ok := v.transitTunnel(r, r.path); ok && v.isPathGateway(r) {
		route.Type, route.Device, route.Via, route.MTU = desired.RouteUnicast, c.Device, c.Via(fam), v.transitMTU(c, r.path)
	}
	v.route(route)
}

// siblingHop returns the next hop to the sibling that has the link to a cluster.
func (v *builder) siblingHop(r *remoteCluster, fam int) (netip.Addr, bool) {
	siblings := v.siblings()
	i := slices.IndexFunc(siblings, func(m sibling) bool { return r.reachable && m.gateway == r.path.Local })
	if i < 0 || v.node == nil {
		return netip.Addr{}, false
	}
	return v.vxlanHop(siblings[i].node, fam)
}
