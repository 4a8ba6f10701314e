package projection

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// addCommonSets fills the sets of every node, gateway or not.
func (v *builder) addCommonSets() {
	for _, p := range disjoint(v.in.Fabric.ServicePools) {
		v.elements.prefix(desired.SetPools, p, netip.Prefix{}, "services.cidr")
	}
	for _, p := range disjoint(v.in.Fabric.TunnelPools) {
		v.elements.prefix(desired.SetRemote, p, netip.Prefix{}, "tunnel.cidr")
	}
	for _, r := range v.remotes {
		for _, p := range r.destinations {
			v.elements.prefix(desired.SetRemote, p, netip.Prefix{}, clusterPath(r.Name))
		}
	}
	v.addConnected()
	for _, p := range disjoint(v.self.GlobalCIDRs) {
		v.elements.prefix(desired.SetBlocks, p, netip.Prefix{}, clusterPath(v.self.Name)+".globalCIDR")
	}
	for _, p := range disjoint(v.self.PodCIDRs) {
		v.elements.prefix(desired.SetPods, p, netip.Prefix{}, clusterPath(v.self.Name)+".podCIDRs")
	}
	v.addNodes()
	for _, dns := range v.usableAddrs(v.in.Fabric.DNS.Addresses()) {
		v.elements.addr(desired.SetDNS, dns, netip.Addr{}, "dns")
	}
	for _, e := range v.exports {
		for i := range e.Clusters {
			part := &e.Clusters[i]
			r := v.byName[part.Name]
			if r == nil {
				continue
			}
			for _, a := range part.IPs {
				if r.onNetwork(a) {
					v.problem(exportPath(e.ID(), part.Name), status.ConnectedExport, "its address "+a.String()+" is on a network of node "+v.in.Node+
						", so this node sends no requests to the cluster")
				} else {
					v.elements.addr(desired.SetMultiPod, a, netip.Addr{}, exportPath(e.ID(), part.Name))
				}
			}
		}
	}
}

// addNodes fills the sets of nodes that may send VXLAN, and of destinations to which no VXLAN
// is forwarded.
func (v *builder) addNodes() {
	origin := clusterPath(v.self.Name)
	closePort := func(a netip.Addr, port int, origin string) {
		v.elements.add(desired.Element{Set: desired.SetVXLAN, Family: fabric.Family(a), ID: targetText(a, port), Origin: origin})
	}
	for _, a := range v.sharedAddrs {
		closePort(a, desired.VXLANPort, origin)
	}
	for _, n := range v.nodes {
		for _, a := range n.Addrs {
			closePort(a, desired.VXLANPort, origin)
		}
		// Only a node's own rules prevent its pods from sending VXLAN.
		if v.vxlanDropped[n.Name] {
			v.problem(origin, status.NodeUnprotected, "no VXLAN is accepted from node "+n.Name+
				": no agent has reported there since the node booted that its rules are in place")
			continue
		}
		for _, a := range n.Addrs {
			v.elements.addr(desired.SetNodes, a, netip.Addr{}, origin)
			for _, b := range n.Addrs {
				set := desired.SetSelf4
				if b.Is6() {
					set = desired.SetSelf6
				}
				v.elements.add(desired.Element{Set: set, Family: fabric.Family(a), ID: a.String() + " . " + b.String(), Origin: origin})
			}
		}
	}
	for i := range v.self.Gateways {
		// Drop untranslated packets to a gateway's load balancer while kube-proxy does not
		// know its address yet. Otherwise connection tracking would keep the flow
		// untranslated for as long as packets arrive: kube-proxy deletes such entries when
		// the endpoints of a Service change, but not when its addresses do. If a load
		// balancer is a node itself (K3s), it translates to the node's address, which must
		// stay open.
		g := &v.self.Gateways[i]
		s := v.services[fabric.SystemNamespace+"/"+fabric.ServiceOf(g.Name)]
		if s == nil || !slices.Contains(g.Endpoints, fabric.SourceLoadBalancer) {
			continue
		}
		for _, a := range s.LoadBalancerAddrs(v.in.Local.Resolved) {
			if v.isNode(a) {
				continue
			}
			for _, p := range s.Ports {
				if p.Protocol == "UDP" {
					closePort(a, p.Port, clusterPath(v.self.Name)+".gateways["+g.Name+"]")
				}
			}
		}
	}
	for _, r := range v.remotes {
		if !r.linked || r.link.Driver != fabric.DriverVXLAN {
			continue
		}
		for i := range r.Gateways {
			g := &r.Gateways[i]
			for _, c := range v.candidates(r.Name, g, r.link.Driver, r.link.BasePort(g, 0)) {
				for _, alt := range []int{0, 1} {
					closePort(c.Addr.Addr(), int(c.Addr.Port())+fabric.VXLANOffset+alt, clusterPath(r.Name))
				}
			}
		}
	}
}

// addFilter adds the elements that select which packets tunnels may deliver. Only gateways have
// them.
func (v *builder) addFilter() {
	all := append(append([]netip.Prefix(nil), v.self.PodCIDRs...), v.self.ServiceCIDRs...)
	for _, p := range disjoint(all) {
		if !v.self.IsGlobalnet(fabric.Family(p.Addr())) {
			v.elements.prefix(desired.SetDirect, p, netip.Prefix{}, clusterPath(v.self.Name))
		}
	}
	for _, r := range v.remotes {
		for i := range r.Gateways {
			for _, a := range r.Gateways[i].Addresses {
				v.elements.addr(desired.SetPeers, a, netip.Addr{}, clusterPath(r.Name)+".gateways["+r.Gateways[i].Name+"]")
			}
		}
	}
	for _, r := range v.remotes {
		v.addICMPErrorSources(r)
	}
	for _, e := range v.exports {
		if part := e.ClusterPart(v.self.Name); part != nil {
			v.addAllowList(e, part)
			v.allowMappedAddrs(e, part)
		}
		v.addRemoteExports(e)
	}
}

// addICMPErrorSources adds the sources whose ICMP errors are accepted for flows with a cluster: its
// own, and the sources of clusters that may forward between it and this cluster.
func (v *builder) addICMPErrorSources(r *remoteCluster) {
	ends := disjoint(slices.Concat(r.destinations, r.tunnelAddrs()))
	for _, name := range append([]string{r.Name}, v.graph.Between(v.self.Name, r.Name)...) {
		from := v.byName[name]
		if from == nil {
			continue
		}
		for _, source := range disjoint(slices.Concat(from.sources, from.tunnelAddrs())) {
			for _, end := range ends {
				if fam := fabric.Family(end.Addr()); fam == fabric.Family(source.Addr()) && v.usesFamily(fam) {
					v.elements.add(desired.Element{
						Set: desired.SetErrors, Family: fam, ID: cidr.Format(source) + " . " + cidr.Format(end), Origin: clusterPath(r.Name),
					})
				}
			}
		}
	}
}

// addAllowList adds an export's allow list. It also blocks packets to the clusterset IPs, which
// would bypass the list: a well-behaved cluster translates these before the tunnel.
func (v *builder) addAllowList(e *fabric.Export, part *fabric.ExportCluster) {
	if e.Allow == nil {
		return
	}
	origin := exportPath(e.ID(), v.self.Name)
	addrs := append([]netip.Addr(nil), part.IPs...)
	for _, h := range part.Hosts {
		addrs = append(addrs, h.IPs...)
	}
	for _, a := range addrs {
		v.elements.addr(desired.SetRestricted, a, netip.Addr{}, origin)
		v.allowClusters(e, a, origin)
	}
	for _, a := range e.VIPs {
		v.elements.addr(desired.SetRestricted, a, netip.Addr{}, origin)
	}
}

// allowClusters permits every cluster in the allow list to reach one address of an export.
func (v *builder) allowClusters(e *fabric.Export, addr netip.Addr, origin string) {
	for _, r := range v.remotes {
		if !e.Allows(r.Name) {
			continue
		}
		for _, p := range r.sources {
			if fabric.Family(p.Addr()) == fabric.Family(addr) {
				v.elements.add(desired.Element{
					Set: desired.SetAllowed, Family: fabric.Family(addr), ID: cidr.Format(p) + " . " + addr.String(), Origin: origin,
				})
			}
		}
	}
}

// allowMappedAddrs opens the mapped address of each headless pod without a fixed address, because
// other clusters learn this address. Other mapped addresses accept only replies.
func (v *builder) allowMappedAddrs(e *fabric.Export, part *fabric.ExportCluster) {
	if e.Type != fabric.Headless || !v.self.Globalnet {
		return
	}
	for _, m := range members(part, v.services[e.ID()]) {
		if m.host != nil {
			continue
		}
		for _, a := range v.mappedAddrs(m.Addrs) {
			v.allowClusters(e, a, exportPath(e.ID(), v.self.Name))
		}
	}
}

// addRemoteExports adds the addresses and ports from which other clusters' servers reply.
func (v *builder) addRemoteExports(e *fabric.Export) {
	for i := range e.Clusters {
		part := &e.Clusters[i]
		r := v.byName[part.Name]
		if r == nil {
			continue
		}
		origin := exportPath(e.ID(), part.Name)
		offer := func(addrs []netip.Addr, ports map[string]int) {
			for _, a := range addrs {
				for _, p := range portsOf(e, part) {
					id := serviceKey(a, p.Protocol, cmp.Or(ports[portKey(p)], p.Port))
					v.elements.add(desired.Element{Set: desired.SetRemoteExports, Family: fabric.Family(a), ID: id, Origin: origin})
				}
			}
		}
		offer(part.IPs, nil)
		for _, h := range part.Hosts {
			offer(h.IPs, nil)
		}
		for _, h := range r.hosts(e, part) {
			offer(h.IPs, h.Ports)
		}
	}
}
