package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// findLink records the settings of the link with a remote cluster, and its MTU.
func (v *builder) findLink(r *remoteCluster) {
	r.link = v.in.Fabric.Link(v.self.Name, r.Name)
	r.overIPv6 = v.overIPv6 || reachedOverIPv6(r.Cluster)
	if !r.linked {
		return
	}
	v.maxLinkMTU = max(v.maxLinkMTU, v.mtu(r, r.link.Driver))
	for i := range r.Gateways {
		for _, c := range v.in.Tunnels[r.Name+"/"+r.Gateways[i].Name] {
			v.maxLinkMTU = max(v.maxLinkMTU, v.mtu(r, c.Driver))
		}
	}
}

// mtu returns the largest packet to a remote cluster over a driver's tunnel, in bytes.
func (v *builder) mtu(r *remoteCluster, driver string) int {
	return v.linkMTU(cmp.Or(r.link.MTU, v.tunnelMTU(driver, r.overIPv6)))
}

// tunnelMTU returns the largest packet, in bytes, that fits a driver's tunnel without fragments in
// this node's underlay.
func (v *builder) tunnelMTU(name string, six bool) int {
	driver := driver.ByName(name)
	if driver == nil {
		return v.underlayMTU()
	}
	traits := driver.Traits()
	fits := v.underlayMTU() - traits.Overhead(six)
	if traits.Userspace > 0 && !v.in.Local.KernelESP {
		fits = min(fits, traits.Userspace)
	}
	if !slices.ContainsFunc(v.in.Fabric.TunnelPools, func(p netip.Prefix) bool { return p.Addr().Is4() }) {
		fits -= traits.InnerIPv6
	}
	return fits
}

// reachedOverIPv6 reports whether a gateway of the cluster may have an IPv6 endpoint. Names and
// discovered endpoints may have any address, and not every node resolves them.
func reachedOverIPv6(c *fabric.Cluster) bool {
	for i := range c.Gateways {
		for _, text := range c.Gateways[i].Endpoints {
			if e, err := fabric.ParseEndpoint(text); fabric.IsEndpointSource(text) || err == nil && !e.Addr.Is4() {
				return true
			}
		}
	}
	return false
}

// largestMTU returns the largest MTU of this cluster's links.
func (v *builder) largestMTU() int {
	if v.maxLinkMTU > 0 {
		return v.maxLinkMTU
	}
	link := v.in.Fabric.Link(v.self.Name, "")
	return v.linkMTU(cmp.Or(link.MTU, v.tunnelMTU(link.Driver, v.overIPv6)))
}

// pathMTUFor returns the MTU of a route to a remote cluster; 0 if it is not less than the MTU of
// the device.
func (v *builder) pathMTUFor(r *remoteCluster, device string, path model.Path) int {
	mtu := v.mtu(r, r.link.Driver)
	if c, ok := v.tunnelTo(r, path.Remote); ok {
		mtu = c.MTU
	}
	if path.MTU > 0 {
		mtu = min(mtu, path.MTU)
	}
	i := slices.IndexFunc(v.state.Devices, func(l desired.Device) bool { return l.Name == device })
	if i >= 0 && v.state.Devices[i].MTU <= mtu {
		return 0
	}
	return mtu
}

// addTunnels builds the tunnels of this gateway to the gateways of other clusters.
func (v *builder) addTunnels() {
	if v.gateway == nil {
		return
	}
	v.checkMTU()
	for _, r := range v.remotes {
		for i := range r.Gateways {
			if g := &r.Gateways[i]; r.sharesOrdinal(g) {
				v.problem(clusterPath(r.Name)+".gateways["+g.Name+"]", status.DuplicateOrdinal, "ordinal "+strconv.Itoa(g.Ordinal)+
					" also belongs to another gateway, so failover between them loses packets: run hawser allocate")
			}
		}
	}
	built := driver.Build(v.localGateway(), v.tunnelRemotes())
	v.merge(&built)
	v.state.Tunnels = built.Tunnels
}

// merge adds the objects and problems of a driver's result to the state.
func (v *builder) merge(built *driver.Result) {
	for _, p := range built.Problems {
		v.problem(p.Path, p.Code, p.Text)
	}
	s := &v.state
	s.Sysctls = append(s.Sysctls, built.Sysctls...)
	s.Devices = append(s.Devices, built.Devices...)
	s.Wireguards = append(s.Wireguards, built.Wireguards...)
	s.Peers = append(s.Peers, built.Peers...)
	s.Addresses = append(s.Addresses, built.Addresses...)
	s.Neighbors = append(s.Neighbors, built.Neighbors...)
	s.Forwards = append(s.Forwards, built.Forwards...)
	s.Rules = append(s.Rules, built.Rules...)
	s.Routes = append(s.Routes, built.Routes...)
	s.IPsecs = append(s.IPsecs, built.IPsecs...)
	for _, e := range built.Elements {
		v.elements.add(e)
	}
}

func (v *builder) localGateway() driver.LocalGateway {
	site := driver.LocalGateway{
		Cluster: v.self.Name, Gateway: v.gateway, Keys: v.in.Keys,
		IPsec: v.in.Fabric.Tunnel.IPsec, Pools: v.in.Fabric.TunnelPools, V4: v.v4, V6: v.v6,
	}
	if v.node != nil {
		site.Addrs = v.node.Addrs
	}
	return site
}

// tunnelRemotes returns the gateways of other clusters, once per tunnel.
func (v *builder) tunnelRemotes() []driver.Remote {
	var out []driver.Remote
	for _, r := range v.remotes {
		if !r.linked {
			continue
		}
		for i := range r.Gateways {
			g := &r.Gateways[i]
			tunnels := v.in.Tunnels[r.Name+"/"+g.Name]
			if len(tunnels) == 0 {
				tunnels = []model.TunnelParams{v.configuredTunnel(r.link, g)}
			}
			for rank, c := range tunnels {
				out = append(out, v.tunnelRemote(r, g, c, rank))
			}
		}
		if driver.ByName(r.link.Driver) == nil {
			v.problem(clusterPath(r.Name), status.DriverUnknown, "this agent has no driver "+r.link.Driver+", so the link is missing: update the agent")
		}
	}
	slices.SortStableFunc(out, func(a, b driver.Remote) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gateway.Name, b.Gateway.Name))
	})
	return out
}

// configuredTunnel returns the tunnel that a link configures for this gateway and a remote gateway.
func (v *builder) configuredTunnel(l fabric.LinkSettings, remote *fabric.Gateway) model.TunnelParams {
	return TunnelOf(l, v.in.Fabric.Epochs, v.in.Keys, v.gateway, remote)
}

func (v *builder) tunnelRemote(r *remoteCluster, g *fabric.Gateway, c model.TunnelParams, rank int) driver.Remote {
	link := r.link
	link.Driver = c.Driver
	configured := v.configuredTunnel(link, g)
	c.LocalPort, c.RemotePort, c.Epoch = cmp.Or(c.LocalPort, configured.LocalPort), cmp.Or(c.RemotePort, configured.RemotePort), cmp.Or(c.Epoch, configured.Epoch)
	out := driver.Remote{
		Cluster: r.Name, Gateway: g, Link: link, Preference: rank, LocalBasePort: c.LocalPort, Alternate: c.Alternate, Epoch: c.Epoch, MTU: v.mtu(r, c.Driver),
	}
	v.endpoint(&out, c.RemotePort)
	if !r.sharesOrdinal(g) || v.isPathGateway(r) && r.path.Remote == g.Name {
		out.Prefixes = r.destinations
	}
	return out
}

// endpoint sets the address and base port of a remote gateway, and the addresses of all its
// endpoints. It uses the selected endpoint, or else the first one. The address is invalid if the
// remote gateway dials in or has no known endpoint. port is the tunnel's base port at the remote
// gateway.
func (v *builder) endpoint(out *driver.Remote, port int) {
	candidates := v.candidates(out.Cluster, out.Gateway, out.Link.Driver, port)
	for _, c := range candidates {
		out.Addrs = append(out.Addrs, c.Addr.Addr())
	}
	i := 0
	if remote, found := v.in.Local.RemoteEndpoints[out.Cluster+"/"+out.Gateway.Name]; found {
		configured := v.candidates(out.Cluster, out.Gateway, out.Link.Driver, v.configuredTunnel(out.Link, out.Gateway).RemotePort)
		addr := remote.Addr
		if out.Alternate && remote.Pending.IsValid() {
			addr = remote.Pending
		}
		i = slices.IndexFunc(configured, func(c model.Candidate) bool { return c.Addr == addr })
		out.DialCount = remote.DialCount
	}
	if i >= 0 && i < len(candidates) {
		out.Addr, out.RemoteBasePort = candidates[i].Addr.Addr(), int(candidates[i].Addr.Port())
	}
}

// canSendTo reports whether this node has an address of the family of addr. It returns true while
// the node's addresses are unknown.
func (v *builder) canSendTo(addr netip.Addr) bool {
	if v.node == nil {
		return true
	}
	_, ok := ofFamily(v.node.Addrs, fabric.Family(addr))
	return ok
}

// sharesOrdinal reports whether another gateway of the cluster has the same ordinal.
func (r *remoteCluster) sharesOrdinal(g *fabric.Gateway) bool {
	return slices.ContainsFunc(r.Gateways, func(o fabric.Gateway) bool { return o.Name != g.Name && o.Ordinal == g.Ordinal })
}

// checkMTU reports configured MTUs that do not fit this node's underlay.
func (v *builder) checkMTU() {
	for _, r := range v.remotes {
		link := r.link
		fits := v.tunnelMTU(link.Driver, r.overIPv6)
		path := "tunnel.mtu"
		if link.MTU != v.in.Fabric.Tunnel.MTU {
			path = "links[" + link.Between[0] + "-" + link.Between[1] + "].mtu"
		}
		if link.MTU <= fits {
			if v.v6 && cmp.Or(link.MTU, fits) < minMTU6 {
				v.problem(path, status.MTUTooSmall, "IPv6 needs "+strconv.Itoa(minMTU6)+" bytes, so larger tunnel packets are fragmented in the underlay")
			}
			continue
		}
		v.problem(path, status.MTUTooLarge, "the underlay of node "+v.in.Node+" supports at most "+strconv.Itoa(fits)+" bytes")
	}
}

func (v *builder) gatewayPath() string {
	return clusterPath(v.self.Name) + ".gateways[" + v.gateway.Name + "]"
}

// isPathGateway reports whether this node is the gateway of the active link to r.
func (v *builder) isPathGateway(r *remoteCluster) bool {
	return r.reachable && v.gateway != nil && v.gateway.Name == r.path.Local
}

// tunnelTo returns the first tunnel to a remote gateway.
func (v *builder) tunnelTo(r *remoteCluster, gateway string) (desired.Tunnel, bool) {
	all := v.tunnelsTo(r, gateway)
	if len(all) == 0 {
		return desired.Tunnel{}, false
	}
	return all[0], true
}

// tunnelsTo returns all tunnels to a remote gateway; the first one sends.
func (v *builder) tunnelsTo(r *remoteCluster, gateway string) []desired.Tunnel {
	// Tunnels are large, so the search compares them by index, without copies.
	first, _ := sort.Find(len(v.state.Tunnels), func(i int) int {
		c := &v.state.Tunnels[i]
		return cmp.Or(strings.Compare(r.Name, c.Cluster), strings.Compare(gateway, c.Gateway))
	})
	end := first
	for end < len(v.state.Tunnels) && v.state.Tunnels[end].Cluster == r.Name && v.state.Tunnels[end].Gateway == gateway {
		end++
	}
	return v.state.Tunnels[first:end]
}

// devicesTo returns the devices of the tunnels to a remote gateway, the preferred one first.
func (v *builder) devicesTo(r *remoteCluster, gateway string) []string {
	var out []string
	rank := -1
	for _, c := range v.tunnelsTo(r, gateway) {
		if c.Preference > rank && !slices.Contains(out, c.Device) {
			rank = c.Preference
			out = append(out, c.Device)
		}
	}
	return out
}

// hasTunnels reports whether this node could receive packets from a tunnel.
func (v *builder) hasTunnels() bool {
	return slices.ContainsFunc(v.state.Devices, func(l desired.Device) bool { return desired.IsTunnel(l.Name) })
}
