package reach

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

func dropped() Verdict { return Verdict{To: Dropped} }

// gatewayView applies the model at a gateway of one cluster.
type gatewayView struct {
	*Model
	cluster  *fabric.Cluster
	backends Backends
}

// Allowed returns where a packet that arrives at a gateway of a cluster may leave it. All pods run
// on the gateway's node. All exports of other clusters are ready.
func (m *Model) Allowed(backends Backends, cluster string, p Packet) Verdict {
	s := gatewayView{m, m.clusters[cluster], backends}
	if s.cluster == nil {
		return dropped()
	}
	if slices.Contains(s.fabric.DNS.Addresses(), p.Dst.Addr()) {
		return s.toDNSServer(p)
	}
	switch p.From {
	case Tunnel:
		return s.fromTunnel(p)
	case Pod, Node:
		return s.fromCluster(p)
	}
	return dropped()
}

// toDNSServer admits packets of pods and nodes to the node's DNS server.
func (s *gatewayView) toDNSServer(p Packet) Verdict {
	if p.From == Tunnel || p.From == Neighbor {
		return dropped()
	}
	return Verdict{To: Host, Dst: []netip.AddrPort{p.Dst}}
}

func (s *gatewayView) fromTunnel(p Packet) Verdict {
	dst := p.Dst.Addr()
	if p.Via != "" {
		// A neighbour may send from its own addresses and, if it forwards transit, from those behind it.
		if p.Cluster = s.sourceCluster(p.Via, p.Src.Addr()); p.Cluster == "" {
			return dropped()
		}
		if to := s.routedCluster(dst); to != "" {
			return s.forwardTransit(p, to)
		}
	}
	if hasGateway(s.cluster, dst) {
		fromGateway := slices.ContainsFunc(s.fabric.Clusters, func(c fabric.Cluster) bool {
			return c.Name != s.cluster.Name && hasGateway(&c, p.Src.Addr())
		})
		if fromGateway && isGatewayTraffic(p) {
			return Verdict{To: Host, Dst: []netip.AddrPort{p.Dst}}
		}
		return dropped()
	}
	if p.isEchoReply() {
		return dropped()
	}
	if p.Protocol == "tcp" && p.MidFlow && s.isExportReply(p.Src.Addr()) {
		return dropped()
	}
	for _, e := range s.exportsAt[dst] {
		part := e.ClusterPart(s.cluster.Name)
		if part == nil {
			continue
		}
		if slices.Contains(part.IPs, dst) {
			if !s.allowsSource(e, p) {
				return dropped()
			}
			return s.toBackends(e, p)
		}
		if pod, ok := s.hostBackend(e, part, dst); ok {
			if !s.allowsSource(e, p) {
				return dropped()
			}
			return s.toHost(e, pod, p)
		}
	}
	for _, m := range s.cluster.Mappings {
		if m.Global.Contains(dst) {
			return s.toMapped(m, p)
		}
	}
	if !s.cluster.IsGlobalnet(fabric.Family(dst)) {
		if inAny(s.cluster.PodCIDRs, dst) {
			return Verdict{To: Pod, Dst: []netip.AddrPort{p.Dst}}
		}
		if inAny(s.cluster.ServiceCIDRs, dst) {
			return Verdict{To: Service, Dst: []netip.AddrPort{p.Dst}}
		}
	}
	return dropped()
}

// sourceCluster returns the cluster that an address belongs to if the link with a neighbor may
// deliver its packets, or "".
func (s *gatewayView) sourceCluster(neighbor string, a netip.Addr) string {
	graph := s.fabric.Graph()
	if !graph.Linked(s.cluster.Name, neighbor) {
		return ""
	}
	candidates := []string{neighbor}
	for i := 0; i < len(candidates); i++ {
		c := s.clusters[candidates[i]]
		if s.hasSource(c, a) || hasGateway(c, a) {
			return c.Name
		}
		if !graph.ForwardsTransit(c.Name) {
			continue
		}
		for _, next := range graph.Neighbors(c.Name) {
			if next != s.cluster.Name && !slices.Contains(candidates, next) {
				candidates = append(candidates, next)
			}
		}
	}
	return ""
}

// routedCluster returns the other cluster to which an address is routed, or "".
func (s *gatewayView) routedCluster(a netip.Addr) string {
	for i := range s.fabric.Clusters {
		c := &s.fabric.Clusters[i]
		known := func(list []netip.Prefix) bool {
			return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) && s.isUntranslated(c, p) })
		}
		if c.Name != s.cluster.Name && (inAny(c.GlobalCIDRs, a) || known(c.PodCIDRs) || known(c.ServiceCIDRs) || hasGateway(c, a)) {
			return c.Name
		}
	}
	return ""
}

// hasGateway reports whether a gateway of the cluster has the tunnel address.
func hasGateway(c *fabric.Cluster, a netip.Addr) bool {
	return slices.ContainsFunc(c.Gateways, func(g fabric.Gateway) bool { return slices.Contains(g.Addresses, a) })
}

// forwardTransit forwards a packet of another cluster unchanged, if the cluster forwards transit
// traffic, but never back to where it came from.
func (s *gatewayView) forwardTransit(p Packet, to string) Verdict {
	graph := s.fabric.Graph()
	if path := graph.Paths(s.cluster.Name, nil)[to]; !graph.ForwardsTransit(s.cluster.Name) || len(path) == 0 || path[0] == p.Via {
		return dropped()
	}
	return Verdict{To: Tunnel, Dst: []netip.AddrPort{p.Dst}}
}

// isExportReply reports whether a reply comes from an export of another cluster. Its client
// connected to the clusterset IP, and would reset a connection with the export itself.
func (s *gatewayView) isExportReply(a netip.Addr) bool {
	return slices.ContainsFunc(s.exportsAt[a], func(e *fabric.Export) bool {
		return slices.ContainsFunc(e.Clusters, func(c fabric.ExportCluster) bool { return c.Name != s.cluster.Name && slices.Contains(c.IPs, a) })
	})
}

// ErrorCounts reports whether a gateway of a cluster accepts an ICMP error from a tunnel. from is
// its source address, and remote is the remote address of the flow that it is about. The source
// must be in the same cluster as remote, or in a cluster that may forward between the two clusters.
func (m *Model) ErrorCounts(cluster string, from, remote netip.Addr) bool {
	s := gatewayView{m, m.clusters[cluster], nil}
	if s.cluster == nil {
		return false
	}
	end := s.routedCluster(remote)
	graph := s.fabric.Graph()
	for i := range s.fabric.Clusters {
		c := &s.fabric.Clusters[i]
		if c.Name == cluster || end == "" || !s.hasSource(c, from) && !hasGateway(c, from) {
			continue
		}
		if c.Name == end || graph.ForwardsTransit(c.Name) && s.hasPathWithout(cluster, c.Name, end) && s.hasPathWithout(c.Name, end, cluster) {
			return true
		}
	}
	return false
}

// hasPathWithout reports whether there is a path between two clusters without a third one.
func (s *gatewayView) hasPathWithout(from, to, without string) bool {
	graph := s.fabric.Graph()
	alive := func(a, b string) bool { return a != without && b != without }
	return len(graph.Paths(from, alive)[to]) > 0
}

// isGatewayTraffic reports whether a packet is a probe, a message of the feed, or an echo request.
func isGatewayTraffic(p Packet) bool {
	switch p.Protocol {
	case "udp":
		return p.Dst.Port() == ProbePort
	case "tcp":
		return p.Dst.Port() == FeedPort
	}
	return true
}

// admits: an allow list admits the addresses from which a cluster's packets come.
func (s *gatewayView) allowsSource(e *fabric.Export, p Packet) bool {
	return e.Allow == nil || e.Allows(p.Cluster) && s.hasSource(s.clusters[p.Cluster], p.Src.Addr())
}

// sends: a cluster's packets come from its block, and from its pods' own addresses
// where it is flat and they mean nothing here.
func (s *gatewayView) hasSource(c *fabric.Cluster, a netip.Addr) bool {
	if c == nil {
		return false
	}
	if inAny(c.GlobalCIDRs, a) {
		return true
	}
	return slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) && s.isUntranslated(c, p) })
}

// isUntranslated reports whether the prefix of a flat cluster is reached untranslated: if it
// overlaps no prefix of the own cluster.
func (s *gatewayView) isUntranslated(c *fabric.Cluster, p netip.Prefix) bool {
	return !c.IsGlobalnet(fabric.Family(p.Addr())) && !slices.ContainsFunc(slices.Concat(s.cluster.PodCIDRs, s.cluster.ServiceCIDRs), p.Overlaps)
}

// toBackends delivers to the ready backends of the own cluster for a port of an export. Any of them
// answers an echo request.
func (s *gatewayView) toBackends(e *fabric.Export, p Packet) Verdict {
	var ends []netip.AddrPort
	for _, port := range e.Ports {
		if p.Protocol != "icmp" && (!strings.EqualFold(port.Protocol, p.Protocol) || port.Port != int(p.Dst.Port())) {
			continue
		}
		for _, ep := range s.backends[e.ID()] {
			if a, ok := sameFamily(ep.Addrs, p.Dst.Addr()); ok && ep.Ready {
				ends = append(ends, destination(a, ep.Ports[PortID(port)], p))
			}
		}
	}
	if len(ends) == 0 {
		return dropped()
	}
	return Verdict{To: Pod, Dst: ends}
}

func (s *gatewayView) toHost(e *fabric.Export, pod Backend, p Packet) Verdict {
	a, ok := sameFamily(pod.Addrs, p.Dst.Addr())
	if !ok {
		return dropped()
	}
	if i := portIndex(e, p); i >= 0 {
		return Verdict{To: Pod, Dst: []netip.AddrPort{destination(a, pod.Ports[PortID(e.Ports[i])], p)}}
	}
	if p.Protocol == "icmp" || s.cluster.IsGlobalnet(fabric.Family(a)) {
		return Verdict{To: Pod, Dst: []netip.AddrPort{destination(a, int(p.Dst.Port()), p)}}
	}
	return dropped()
}

// portIndex returns the index of the export's port that a packet is for, or -1.
func portIndex(e *fabric.Export, p Packet) int {
	return slices.IndexFunc(e.Ports, func(port fabric.Port) bool {
		return strings.EqualFold(port.Protocol, p.Protocol) && port.Port == int(p.Dst.Port())
	})
}

// toMapped admits replies to the pods of a mapped block. Pods of a headless export without a
// fixed address also admit new flows of allowed clusters.
func (s *gatewayView) toMapped(m fabric.Mapping, p Packet) Verdict {
	pod := translate(p.Dst.Addr(), m.Pods)
	to := Verdict{To: Pod, Dst: []netip.AddrPort{netip.AddrPortFrom(pod, p.Dst.Port())}}
	for _, e := range s.headless[s.cluster.Name] {
		part := e.ClusterPart(s.cluster.Name)
		for _, ep := range s.backends[e.ID()] {
			if slices.Contains(ep.Addrs, pod) && hostOf(part, ep) == nil && e.Allows(p.Cluster) && s.hasSource(s.clusters[p.Cluster], p.Src.Addr()) {
				return to
			}
		}
	}
	switch {
	case p.Protocol != "udp":
		if p.MidFlow {
			return to
		}
	case s.fromExportPort(p.Src) && !s.isUDPBackend(netip.AddrPortFrom(pod, p.Dst.Port())):
		return to
	}
	return dropped()
}

// offered: over UDP an answer comes from the port of another cluster's export.
func (s *gatewayView) fromExportPort(src netip.AddrPort) bool {
	for _, e := range s.exportsAt[src.Addr()] {
		port := slices.ContainsFunc(e.Ports, func(p fabric.Port) bool { return p.Protocol == "UDP" && p.Port == int(src.Port()) })
		for _, part := range e.Clusters {
			if !port || part.Name == s.cluster.Name {
				continue
			}
			if slices.Contains(part.IPs, src.Addr()) || slices.ContainsFunc(part.Hosts, func(h fabric.Host) bool { return slices.Contains(h.IPs, src.Addr()) }) {
				return true
			}
		}
	}
	return false
}

// isUDPBackend reports whether an export has this UDP port of a pod as a backend.
func (s *gatewayView) isUDPBackend(at netip.AddrPort) bool {
	for _, e := range s.udpExports[s.cluster.Name] {
		part := e.ClusterPart(s.cluster.Name)
		for _, ep := range s.backends[e.ID()] {
			for _, port := range e.Ports {
				known := e.Type != fabric.Headless || hostOf(part, ep) != nil
				if known && port.Protocol == "UDP" && slices.Contains(ep.Addrs, at.Addr()) && ep.Ports[PortID(port)] == int(at.Port()) {
					return true
				}
			}
		}
	}
	return false
}

// unplaced: conntrack places no echo reply without its request.
func (p Packet) isEchoReply() bool { return p.Protocol == "icmp" && p.MidFlow }

func (s *gatewayView) fromCluster(p Packet) Verdict {
	if p.isEchoReply() {
		return dropped()
	}
	dst := p.Dst.Addr()
	for _, e := range s.exportsAt[dst] {
		part := e.ClusterPart(s.cluster.Name)
		if slices.Contains(e.VIPs, dst) {
			if part == nil && !e.Allows(s.cluster.Name) {
				return dropped()
			}
			return s.toExport(e, part, p)
		}
		if part == nil {
			continue
		}
		if slices.Contains(part.IPs, dst) {
			return s.toBackends(e, p)
		}
		if pod, ok := s.hostBackend(e, part, dst); ok {
			// Other ports than those declared are for other clusters.
			if p.Protocol != "icmp" && portIndex(e, p) < 0 {
				return dropped()
			}
			return s.toHost(e, pod, p)
		}
	}
	for range s.blocks.ownersOf(dst, s.cluster.Name) {
		return s.toTunnel(p, p.Dst)
	}
	for prefix, owner := range s.flat.ownersOf(dst, s.cluster.Name) {
		if s.isUntranslated(s.clusters[owner], prefix) {
			return s.toTunnel(p, p.Dst)
		}
	}
	return dropped()
}

// clusterset: the own cluster's backends come first; else another cluster's.
func (s *gatewayView) toExport(e *fabric.Export, part *fabric.ExportCluster, p Packet) Verdict {
	if p.Protocol != "icmp" && portIndex(e, p) < 0 {
		return dropped()
	}
	if part != nil {
		if v := s.toBackends(e, p); v.To != Dropped {
			return v
		}
	}
	var ends []netip.AddrPort
	for _, other := range e.Clusters {
		if other.Name == s.cluster.Name {
			continue
		}
		if a, ok := sameFamily(other.IPs, p.Dst.Addr()); ok {
			ends = append(ends, netip.AddrPortFrom(a, p.Dst.Port()))
		}
	}
	if len(ends) == 0 {
		return dropped()
	}
	return s.toTunnel(p, ends...)
}

// toTunnel sends a packet into a tunnel with the source address of its pod in other clusters.
func (s *gatewayView) toTunnel(p Packet, dst ...netip.AddrPort) Verdict {
	v := Verdict{To: Tunnel, Dst: dst}
	src := p.Src.Addr()
	fam := fabric.Family(src)
	for _, e := range s.headless[s.cluster.Name] {
		part := e.ClusterPart(s.cluster.Name)
		if !s.cluster.IsGlobalnet(fam) {
			continue
		}
		for _, ep := range s.backends[e.ID()] {
			if h := hostOf(part, ep); h != nil && slices.Contains(ep.Addrs, src) {
				if a, ok := sameFamily(h.IPs, src); ok {
					v.Srcs = []netip.Addr{a}
					return v
				}
			}
		}
	}
	if !s.cluster.IsGlobalnet(fam) && inAny(s.cluster.PodCIDRs, src) && !s.overlapsOther(src) {
		return v
	}
	for _, m := range s.cluster.Mappings {
		isMapped := s.cluster.IsGlobalnet(fam) && s.cluster.EgressMode == fabric.EgressMapped
		if m.Pods.Contains(src) && isMapped {
			v.Srcs = []netip.Addr{translate(src, m.Global)}
			return v
		}
	}
	for _, a := range s.cluster.EgressIPs {
		if fabric.Family(a) == fam {
			v.Srcs = append(v.Srcs, a)
		}
	}
	return v
}

// rival: another cluster uses the prefix of a flat one, and could not answer to it.
func (s *gatewayView) overlapsOther(src netip.Addr) bool {
	for _, own := range s.cluster.PodCIDRs {
		if !own.Contains(src) {
			continue
		}
		for _, owners := range s.all.overlapping(own) {
			if len(owners) > 1 || owners[0] != s.cluster.Name {
				return true
			}
		}
	}
	return false
}

// hostOf returns the fixed address of a pod, which follows from its hostname or ordinal.
func hostOf(part *fabric.ExportCluster, ep Backend) *fabric.Host {
	for i := range part.Hosts {
		h := &part.Hosts[i]
		suffix, ordinal := strings.CutPrefix(h.Name, "*")
		if ep.Hostname == h.Name || ordinal && ep.Hostname != "" && strings.HasSuffix(ep.Hostname, suffix) {
			return h
		}
	}
	return nil
}

func (s *gatewayView) hostBackend(e *fabric.Export, part *fabric.ExportCluster, a netip.Addr) (Backend, bool) {
	for _, ep := range s.backends[e.ID()] {
		if h := hostOf(part, ep); h != nil && slices.Contains(h.IPs, a) {
			return ep, true
		}
	}
	return Backend{}, false
}

func inAny(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// sameFamily returns the first address of the family of another address.
func sameFamily(list []netip.Addr, like netip.Addr) (netip.Addr, bool) {
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is4() == like.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return list[i], true
}

// PortID is protocol and number of a port, as in TCP/80.
func PortID(p fabric.Port) string { return strings.ToUpper(p.Protocol) + "/" + strconv.Itoa(p.Port) }

func destination(a netip.Addr, port int, p Packet) netip.AddrPort {
	if p.Protocol == "icmp" {
		port = 0
	}
	return netip.AddrPortFrom(a, uint16(port))
}

// translate keeps the host part of an address.
func translate(a netip.Addr, to netip.Prefix) netip.Addr {
	from, net := a.AsSlice(), to.Addr().AsSlice()
	for bit := range to.Bits() {
		mask := byte(0x80 >> (bit % 8))
		from[bit/8] = from[bit/8]&^mask | net[bit/8]&mask
	}
	out, _ := netip.AddrFromSlice(from)
	return out
}
