package projection

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// addExports adds the entries of every export: of its clusterset IPs, and of this cluster's part.
func (v *builder) addExports() {
	for _, e := range v.exports {
		part := e.ClusterPart(v.self.Name)
		var svc *model.Service
		if part != nil {
			svc = v.localService(e, part)
			v.reportUnsupported(e)
			if e.Type == fabric.Headless {
				v.addHeadless(e, part, svc)
			} else {
				v.addExportAddr(e, part, svc)
			}
		}
		if e.Type != fabric.Headless && (part != nil || e.Allows(v.self.Name)) {
			v.addVIPs(e, svc)
		}
	}
}

// localService returns the Service behind this cluster's part of an export.
func (v *builder) localService(e *fabric.Export, part *fabric.ExportCluster) *model.Service {
	id := e.ID()
	path := exportPath(id, v.self.Name)
	svc := v.services[id]
	if v.externalNames[id] {
		v.problem(path, status.ServiceType, mcs.ExternalService(id))
		return nil
	}
	if svc == nil {
		v.problem(path, status.ServiceMissing, mcs.MissingService(id))
		return nil
	}
	hasPorts := true
	for _, p := range portsOf(e, part) {
		has := func(s model.ServicePort) bool { return strings.EqualFold(s.Protocol, p.Protocol) && s.Port == p.Port }
		if !slices.ContainsFunc(svc.Ports, has) {
			hasPorts = false
			ports := make([]string, len(svc.Ports))
			for i, s := range svc.Ports {
				ports[i] = strconv.Itoa(s.Port) + "/" + strings.ToUpper(s.Protocol)
			}
			v.problem(path, status.PortMissing, fmt.Sprintf("Service %s has no port %d/%s (it has %s): correct the export or the Service",
				id, p.Port, strings.ToUpper(p.Protocol), strings.Join(ports, ", ")))
		}
	}
	if ready, _ := serving(e, part, svc); !ready && hasPorts {
		v.problem(path, status.ExportWithoutEndpoints, "export "+id+" has no ready endpoint in cluster "+v.self.Name)
	}
	return svc
}

// portKey returns a port in the notation of Endpoint.Ports.
func portKey(p fabric.Port) string { return strings.ToUpper(p.Protocol) + "/" + strconv.Itoa(p.Port) }

// addExportAddr adds the entries of this cluster's export address, whose targets are its endpoints
// (exportTargets). Every node has them, so that every gateway can receive its packets.
func (v *builder) addExportAddr(e *fabric.Export, part *fabric.ExportCluster, svc *model.Service) {
	if svc == nil {
		return
	}
	origin := exportPath(e.ID(), v.self.Name)
	for _, ip := range part.IPs {
		for _, p := range portsOf(e, part) {
			v.addEntry(entry{
				addr: ip, protocol: p.Protocol, port: p.Port, targets: v.exportTargets(svc, p, fabric.Family(ip)),
				affinity: e.Affinity == "ClientIP", origin: origin,
			})
			// After a failover, a server may send the first packet through a gateway
			// that does not know the connection. That gateway must translate the
			// source. Endpoints that are no longer ready still have connections.
			for i := range svc.Endpoints {
				ep := &svc.Endpoints[i]
				addr, ok := ofFamily(ep.Addrs, fabric.Family(ip))
				if port := ep.Ports[portKey(p)]; ok && port > 0 {
					v.addExternalEndpoint(ep, addr, p.Protocol, port, origin)
					v.recordReplySource(addr, p.Protocol, port, ip, p.Port, origin)
				}
			}
		}
	}
	v.addHairpin(svc, origin)
}

// exportTargets returns the endpoints that get connections of other clusters. Endpoints on nodes
// whose VXLAN this node drops cannot reply; they count only if the Service has no others.
func (v *builder) exportTargets(svc *model.Service, p fabric.Port, fam int) []target {
	out, _ := endpointTargets(svc, p, fam, v.vxlanDropped)
	if len(out) == 0 && len(v.vxlanDropped) > 0 {
		out, _ = endpointTargets(svc, p, fam, nil)
	}
	return out
}

// endpointTargets returns the endpoints that get connections of a port in a family, sorted by
// address: the ready endpoints. Without a ready endpoint, it returns endpoints that terminate
// and still serve, and reports true, as kube-proxy does (KEP-1669). It skips endpoints on the
// nodes in skip.
func endpointTargets(svc *model.Service, p fabric.Port, fam int, skip map[string]bool) (out []target, terminating bool) {
	if svc == nil {
		return nil, false
	}
	var last []target
	for i := range svc.Endpoints {
		ep := &svc.Endpoints[i]
		addr, ok := ofFamily(ep.Addrs, fam)
		port := ep.Ports[portKey(p)]
		if !ok || port == 0 || skip[ep.Node] {
			continue
		}
		t := target{key: addr.String(), addr: addr, port: port, weight: 1}
		switch {
		case ep.Ready:
			out = append(out, t)
		case ep.Terminating:
			last = append(last, t)
		}
	}
	if len(out) == 0 {
		out, terminating = last, len(last) > 0
	}
	slices.SortFunc(out, func(a, b target) int { return a.addr.Compare(b.addr) })
	return slices.CompactFunc(out, func(a, b target) bool { return a.addr == b.addr }), terminating
}

// addHairpin lists the backends of this node. A backend that reaches itself through the
// service's address must see a different source. Otherwise its kernel would drop the packet as
// a martian.
func (v *builder) addHairpin(svc *model.Service, origin string) {
	for i := range svc.Endpoints {
		ep := &svc.Endpoints[i]
		if ep.Node != v.in.Node {
			continue
		}
		for _, a := range ep.Addrs {
			v.elements.add(desired.Element{
				Set: desired.SetHairpin, Family: fabric.Family(a), ID: a.String() + " . " + a.String(), Origin: origin,
			})
		}
	}
}

// addVIPs adds the entries of the clusterset IPs. Their targets are the clusters that the policy
// selects: the export addresses of other clusters, and the endpoints of this cluster.
func (v *builder) addVIPs(e *fabric.Export, svc *model.Service) {
	id := e.ID()
	for _, vip := range e.VIPs {
		all := v.readyRemotes(e, id, fabric.Family(vip))
		for _, p := range e.Ports {
			remotes := withPort(e, all, p)
			local, terminating := endpointTargets(svc, p, fabric.Family(vip), nil)
			v.addEntry(entry{
				addr: vip, protocol: p.Protocol, port: p.Port,
				targets:  v.vipTargets(e, remotes, local, terminating, p.Port),
				affinity: e.Affinity == "ClientIP", origin: "exports[" + id + "]",
			})
		}
	}
}

// readyRemotes returns the export address of every other cluster that is ready and reachable.
func (v *builder) readyRemotes(e *fabric.Export, id string, fam int) map[string]netip.Addr {
	out := make(map[string]netip.Addr, len(e.Clusters))
	for i := range e.Clusters {
		part := &e.Clusters[i]
		r := v.byName[part.Name]
		if r == nil || !r.reachable || !r.isReady(id) {
			continue
		}
		if ip, ok := ofFamily(part.IPs, fam); ok && r.reaches(ip) && r.supportsFamily(id, fam) {
			out[part.Name] = ip
		}
	}
	return out
}

// withPort returns the remotes whose part of the export has port p.
func withPort(e *fabric.Export, remotes map[string]netip.Addr, p fabric.Port) map[string]netip.Addr {
	out := remotes
	for i := range e.Clusters {
		part := &e.Clusters[i]
		if _, there := remotes[part.Name]; !there || hasPort(part, p) {
			continue
		}
		if len(out) == len(remotes) {
			out = maps.Clone(remotes)
		}
		delete(out, part.Name)
	}
	return out
}

// vipTargets returns the backends of a port: this cluster's endpoints (local; terminating means
// that none of them is ready) and other clusters' export addresses.
func (v *builder) vipTargets(e *fabric.Export, remotes map[string]netip.Addr, local []target, terminating bool, port int) []target {
	ready := make([]string, 0, len(remotes)+1)
	for name := range remotes {
		ready = append(ready, name)
	}
	if len(local) > 0 {
		ready = append(ready, v.self.Name)
	}
	slices.Sort(ready)
	ready = prefer(v.preferReachable(ready), func(name string) bool {
		if name == v.self.Name {
			return !terminating
		}
		return !v.byName[name].isTerminating(e.ID())
	})
	var out []target
	// The endpoints of this cluster share its weight. To keep weights whole numbers, the
	// weights of other clusters are multiplied by the number of endpoints instead.
	for _, s := range selectClusters(e.Balance, v.self.Name, ready) {
		if s.cluster == v.self.Name {
			for _, t := range local {
				t.weight = s.weight
				out = append(out, t)
			}
			continue
		}
		out = append(out, target{
			key: "cluster/" + s.cluster, addr: remotes[s.cluster], port: port, weight: s.weight * max(len(local), 1),
		})
	}
	return out
}

// preferReachable drops clusters whose links are down, unless all are down. Then all stay:
// right after start the probes may not have run yet, and a delayed connection is better than a
// refused one.
func (v *builder) preferReachable(ready []string) []string {
	return prefer(ready, func(name string) bool {
		r := v.byName[name]
		return r == nil || !r.path.Down
	})
}

// prefer returns the names for which good returns true. If good returns false for all, it returns
// all names.
func prefer(names []string, good func(string) bool) []string {
	var out []string
	for _, name := range names {
		if good(name) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return names
	}
	return out
}

// Feeds run between tunnel addresses of the two clusters and use the path of the clusters' traffic.
// All other traffic between these addresses uses the pair's own link, even if it is down: probes
// test that link, and transit traffic has these outer addresses.

// viaTransit reports whether a neighbouring cluster is currently reached in transit.
func (r *remoteCluster) viaTransit() bool { return r.linked && r.reachable && r.path.Via != "" }

// addFeedRules adds the rules of TableFeed, but only while the table has routes: for a rule with
// ports, the kernel parses every routed packet.
func (v *builder) addFeedRules() {
	if v.gateway == nil || !slices.ContainsFunc(v.remotes, (*remoteCluster).viaTransit) {
		return
	}
	feed := desired.Rule{
		Priority: desired.RuleFeed, IIF: "lo", TCPPort: desired.FeedPort, Table: desired.TableFeed, Origin: v.gatewayPath(),
	}
	v.addRule(feed)
	feed.Priority, feed.TCPPort, feed.TCPFrom = desired.RuleFeedReply, 0, desired.FeedPort
	v.addRule(feed)
}

// routeTunnelAddrs routes the tunnel addresses of a cluster that is reached in transit. For
// neighbouring clusters it routes only feeds.
func (v *builder) routeTunnelAddrs(r *remoteCluster) {
	for _, dst := range r.tunnelAddrs() {
		fam := fabric.Family(dst.Addr())
		if !v.usesFamily(fam) {
			continue
		}
		src, _ := ofFamily(v.gateway.Addresses, fam)
		route := desired.Route{Table: desired.TableOut, Dst: dst, Type: desired.RouteUnicast, Src: src, Origin: clusterPath(r.Name)}
		if r.linked {
			route.Table = desired.TableFeed
		}
		if c, ok := v.transitTunnel(r, r.ownPath); ok && r.hasLink {
			route.Device, route.Via, route.MTU = c.Device, c.Via(fam), v.transitMTU(c, r.ownPath)
		} else if via, ok := v.siblingHop(r, fam); ok {
			route.Device, route.Via = desired.SiblingDevice, via
		} else {
			route.Type, route.Src = desired.RouteBlackhole, netip.Addr{}
		}
		v.route(route)
	}
}
