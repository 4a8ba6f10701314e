package projection

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// addDNS adds the services and zones of the name server.
func (v *builder) addDNS() {
	for _, e := range v.exports {
		if e.ClusterPart(v.self.Name) != nil || e.Allows(v.self.Name) {
			v.state.Services = append(v.state.Services, v.dnsService(e))
		}
	}
	v.state.Services = unique(v.state.Services)
	f := v.in.Fabric
	// The SOA serial follows from the content, so that equal zones have equal serials on every
	// node and after every restart. Zero is not a valid serial.
	d := &digest{sum: stablehash.Sum64("")}
	d.number(int(f.DNS.TTL))
	d.flag(f.DNS.ClusterNames)
	for i := range v.state.Services {
		s := &v.state.Services[i]
		d.text(s.Namespace)
		d.text(s.Name)
		d.flag(s.Headless)
		d.addrs(s.VIPs)
		for _, p := range s.Ports {
			d.text(p.Name)
			d.text(p.Protocol)
			d.number(p.Port)
		}
		for _, c := range s.Clusters {
			d.text(c.Name)
			d.addrs(c.IPs)
			for _, host := range c.Hosts {
				d.text(host.Name)
				d.addrs(host.IPs)
				for _, port := range slices.Sorted(maps.Keys(host.Ports)) {
					d.text(port)
					d.number(host.Ports[port])
				}
			}
		}
	}
	serial := max(uint32(d.sum>>32)^uint32(d.sum), 1)
	for i, domain := range append([]string{f.Domain}, f.ExtraDomains...) {
		v.state.Zones = append(v.state.Zones, desired.Zone{
			Domain: domain, ClusterNames: f.DNS.ClusterNames, TTL: f.DNS.TTL, Serial: serial, Extra: i > 0, Origin: "dns",
		})
	}
}

// dnsService returns the DNS data of an export. A reachable cluster that is not ready has no
// addresses: its name exists and has no data.
func (v *builder) dnsService(e *fabric.Export) desired.Service {
	out := desired.Service{
		Namespace: e.Namespace, Name: e.Name, Headless: e.Type == fabric.Headless, Origin: "exports[" + e.ID() + "]",
	}
	if !out.Headless {
		out.VIPs = slices.DeleteFunc(sortedAddrs(e.VIPs), func(a netip.Addr) bool { return !v.isReachable(e, fabric.Family(a)) })
	}
	for _, p := range e.Ports {
		out.Ports = append(out.Ports, desired.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	slices.SortFunc(out.Ports, func(a, b desired.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Name, b.Name))
	})
	for i := range e.Clusters {
		if c, ok := v.dnsCluster(e, &e.Clusters[i]); ok {
			out.Clusters = append(out.Clusters, c)
		}
	}
	slices.SortFunc(out.Clusters, func(a, b desired.ServiceCluster) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// isReachable reports whether this cluster can reach an export in a family: this cluster and an
// exporting cluster must have the family.
func (v *builder) isReachable(e *fabric.Export, fam int) bool {
	if !v.self.Has(fam) {
		return false
	}
	return slices.ContainsFunc(e.Clusters, func(part fabric.ExportCluster) bool {
		if part.Name == v.self.Name {
			svc := v.services[e.ID()]
			return svc == nil || hasFamily(svc, fam)
		}
		r := v.byName[part.Name]
		return r != nil && r.supportsFamily(e.ID(), fam)
	})
}

func (v *builder) dnsCluster(e *fabric.Export, part *fabric.ExportCluster) (desired.ServiceCluster, bool) {
	out := desired.ServiceCluster{Name: part.Name}
	if part.Name == v.self.Name {
		svc := v.services[e.ID()]
		if e.Type == fabric.Headless {
			out.Hosts = localHosts(part, svc)
		} else if ready, _ := serving(e, part, svc); ready {
			out.IPs = slices.DeleteFunc(sortedAddrs(part.IPs), func(a netip.Addr) bool {
				return !v.self.Has(fabric.Family(a)) || !hasFamily(svc, fabric.Family(a))
			})
		}
		return out, true
	}
	r := v.byName[part.Name]
	if r == nil || !r.reachable {
		return out, false
	}
	if e.Type == fabric.Headless {
		out.Hosts = v.hostsHere(r, r.hosts(e, part))
	} else if r.isReady(e.ID()) {
		out.IPs = slices.DeleteFunc(r.routed(part.IPs), func(a netip.Addr) bool {
			return !v.self.Has(fabric.Family(a)) || r.onNetwork(a) || !r.supportsFamily(e.ID(), fabric.Family(a))
		})
	}
	return out, true
}

// hostsHere removes addresses of families that this cluster lacks, and addresses on networks of
// this node.
func (v *builder) hostsHere(r *remoteCluster, hosts []desired.ServiceHost) []desired.ServiceHost {
	var out []desired.ServiceHost
	for _, h := range hosts {
		h.IPs = slices.DeleteFunc(h.IPs, func(a netip.Addr) bool { return !v.self.Has(fabric.Family(a)) || r.onNetwork(a) })
		if len(h.IPs) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// routed returns the addresses of a remote cluster that this cluster routes to it, sorted.
func (r *remoteCluster) routed(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(sortedAddrs(addrs), func(a netip.Addr) bool { return !r.isDestination(a) })
}

// localHosts returns this cluster's ready endpoints, at their pod addresses.
func localHosts(part *fabric.ExportCluster, svc *model.Service) []desired.ServiceHost {
	var out []desired.ServiceHost
	for _, m := range members(part, svc) {
		if m.Ready && len(m.Addrs) > 0 {
			out = append(out, desired.ServiceHost{Name: m.Hostname, IPs: sortedAddrs(m.Addrs), Ports: remappedPorts(m.Endpoint)})
		}
	}
	return out
}

// hosts returns the ready endpoints that another cluster announced, at addresses that this cluster
// routes to it. If this cluster does not route a pod's own address, the pod's fixed global address
// replaces it.
func (r *remoteCluster) hosts(e *fabric.Export, part *fabric.ExportCluster) []desired.ServiceHost {
	live := r.live[e.ID()]
	if live == nil || e.Type != fabric.Headless {
		return nil
	}
	var out []desired.ServiceHost
	// A cluster may announce more than MaxHosts.
	for _, h := range live.Hosts[:min(len(live.Hosts), mcs.MaxHosts)] {
		ips, ports := r.routed(h.IPs), h.Ports
		if len(ips) == 0 {
			ips, ports = r.routed(fixedIPs(part, h.Name)), nil
		}
		if len(ips) > 0 {
			out = append(out, desired.ServiceHost{Name: cmp.Or(h.Name, h.Label), IPs: ips, Ports: ports})
		}
	}
	slices.SortFunc(out, func(a, b desired.ServiceHost) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.IPs, b.IPs, netip.Addr.Compare))
	})
	return out
}

func fixedIPs(part *fabric.ExportCluster, hostname string) []netip.Addr {
	for _, name := range []string{hostname, ordinalName(hostname)} {
		for _, h := range part.Hosts {
			if name != "" && h.Name == name {
				return h.IPs
			}
		}
	}
	return nil
}

// serving reports whether an endpoint gets connections of one of a part's ports, and
// whether all such endpoints terminate.
func serving(e *fabric.Export, part *fabric.ExportCluster, svc *model.Service) (ready, terminating bool) {
	for _, p := range portsOf(e, part) {
		for _, fam := range []int{4, 6} {
			targets, last := endpointTargets(svc, p, fam, nil)
			if len(targets) > 0 && !last {
				return true, false
			}
			terminating = terminating || last
		}
	}
	return terminating, terminating
}

func sortedAddrs(list []netip.Addr) []netip.Addr {
	out := slices.Clone(list)
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// digest computes FNV-1a over the fields of a structure. Each field has a fixed size, a length or a
// terminating zero byte, so that adjacent fields stay distinct.
type digest struct{ sum uint64 }

func (d *digest) octet(b byte) { d.sum = (d.sum ^ uint64(b)) * 0x100000001b3 }

func (d *digest) text(s string) {
	for i := range len(s) {
		d.octet(s[i])
	}
	d.octet(0)
}

func (d *digest) flag(set bool) {
	if set {
		d.octet(1)
	} else {
		d.octet(0)
	}
}

func (d *digest) number(n int) {
	for shift := 0; shift < 64; shift += 8 {
		d.octet(byte(n >> shift))
	}
}

func (d *digest) addrs(list []netip.Addr) {
	d.number(len(list))
	for _, a := range list {
		for _, b := range a.As16() {
			d.octet(b)
		}
	}
}

// replySource is an address by which clients may know a backend. Packets that a server sends first,
// through a gateway without the connection, must leave with this address.
type replySource struct {
	family int
	id     string // the backend's address, protocol and port
	as     string // the address and port that clients know
	origin string
}

// recordReplySource records that clients know a backend by an address and port of this cluster's
// block.
func (v *builder) recordReplySource(backend netip.Addr, protocol string, port int, as netip.Addr, asPort int, origin string) {
	if v.gateway == nil {
		return
	}
	// A UDP packet that a pod of a flat cluster sends first may be a request of the pod. A
	// request must keep its source.
	if v.hasOwnAddress(backend) && !strings.EqualFold(protocol, "TCP") {
		return
	}
	id := serviceKey(backend, protocol, port)
	v.replySources = append(v.replySources, replySource{family: fabric.Family(backend), id: id, as: targetText(as, asPort), origin: origin})
	if strings.EqualFold(protocol, "UDP") {
		v.elements.add(desired.Element{Set: desired.SetServed, Family: fabric.Family(backend), ID: id, Origin: origin})
	}
}

// hasOwnAddress reports whether other clusters reach a pod at its own address.
func (v *builder) hasOwnAddress(pod netip.Addr) bool {
	return !v.self.IsGlobalnet(fabric.Family(pod)) && slices.ContainsFunc(v.self.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(pod) })
}

// addReplySources adds the source address of each backend that sends first. It marks a backend with
// several addresses as ambiguous. Its packets wait until the client sends: a wrong source address
// would end the connection.
func (v *builder) addReplySources() {
	slices.SortFunc(v.replySources, func(a, b replySource) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.id, b.id), cmp.Compare(a.as, b.as), cmp.Compare(a.origin, b.origin))
	})
	for i := 0; i < len(v.replySources); {
		first, last := v.replySources[i], v.replySources[i]
		for ; i < len(v.replySources) && v.replySources[i].family == first.family && v.replySources[i].id == first.id; i++ {
			last = v.replySources[i]
		}
		if first.as != last.as {
			v.elements.add(desired.Element{Set: desired.SetAmbiguous, Family: first.family, ID: first.id, Origin: last.origin})
			continue
		}
		v.elements.add(desired.Element{
			Set: desired.SetReverse, Family: first.family, ID: first.id, Value: first.as, Origin: first.origin,
		})
	}
}
