package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// ClusterState returns the state that this cluster announces to the others: which of its exports
// have ready endpoints and, for headless exports, the addresses by which others reach each
// endpoint. It depends only on fabric and facts, so all nodes of a cluster with the same facts
// announce the same state.
func ClusterState(in Input) model.ClusterState {
	if v := newBuilder(in); v != nil {
		return v.clusterState()
	}
	return model.ClusterState{Cluster: in.Cluster}
}

func (v *builder) clusterState() model.ClusterState {
	in := v.in
	out := model.ClusterState{Cluster: in.Cluster}
	offers := map[string]*mcs.Offer{}
	for _, v := range in.decision().Exports {
		if v.Offer != nil {
			offers[v.Export.Namespace+"/"+v.Export.Name] = v.Offer
		}
	}
	for _, e := range v.exports {
		part := e.ClusterPart(v.self.Name)
		if part == nil {
			continue
		}
		svc := v.services[e.ID()]
		live := model.ExportState{Namespace: e.Namespace, Name: e.Name, Offer: offers[e.ID()]}
		if e.Type == fabric.Headless {
			live.Hosts = v.liveHosts(part, svc)
			live.Hosts = live.Hosts[:min(len(live.Hosts), mcs.MaxHosts)]
			live.Ready = len(live.Hosts) > 0
		} else {
			live.Ready, live.Terminating = serving(e, part, svc)
			live.Families = limitedFamilies(part.IPs, svc)
		}
		out.Exports = append(out.Exports, live)
	}
	return out
}

func (v *builder) liveHosts(part *fabric.ExportCluster, svc *model.Service) []model.ExportHost {
	var out []model.ExportHost
	for _, m := range members(part, svc) {
		if !m.Ready {
			continue
		}
		if ips := v.addressesOutside(m); len(ips) > 0 {
			host := model.ExportHost{Name: m.Hostname, IPs: sortedAddrs(ips)}
			if host.Name == "" {
				host.Label = cidr.Label(slices.MinFunc(m.Addrs, netip.Addr.Compare))
			}
			if m.host == nil || !slices.ContainsFunc(m.host.IPs, func(a netip.Addr) bool { return slices.Contains(ips, a) }) {
				host.Ports = remappedPorts(m.Endpoint)
			}
			out = append(out, host)
		}
	}
	slices.SortFunc(out, func(a, b model.ExportHost) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.IPs, b.IPs, netip.Addr.Compare))
	})
	return out
}

// remappedPorts returns the ports that have a different number on the endpoint.
func remappedPorts(e *model.Endpoint) map[string]int {
	var out map[string]int
	for port, number := range e.Ports {
		if _, text, _ := strings.Cut(port, "/"); text != strconv.Itoa(number) {
			if out == nil {
				out = map[string]int{}
			}
			out[port] = number
		}
	}
	return out
}

// addressesOutside returns the addresses by which other clusters reach an endpoint. In a flat
// cluster this is the endpoint's own address if podCIDRs contains it. Otherwise it is its fixed
// global address, or else its mapped egress address.
func (v *builder) addressesOutside(m member) []netip.Addr {
	var out, hidden []netip.Addr
	for _, a := range m.Addrs {
		switch {
		case v.self.IsGlobalnet(fabric.Family(a)):
			hidden = append(hidden, a)
		case contains(v.self.PodCIDRs, a):
			out = append(out, a)
		}
	}
	if m.host == nil {
		return append(out, v.mappedAddrs(hidden)...)
	}
	for _, ip := range m.host.IPs {
		if _, ok := ofFamily(hidden, fabric.Family(ip)); ok {
			out = append(out, ip)
		}
	}
	return out
}

// limitedFamilies returns the families of a Service if its export also has addresses of another
// family; otherwise nil. A Service in a dual-stack cluster may have one family.
func limitedFamilies(ips []netip.Addr, svc *model.Service) []int {
	if svc == nil {
		return nil
	}
	var out []int
	complete := true
	for _, fam := range []int{4, 6} {
		_, offered := ofFamily(ips, fam)
		if hasFamily(svc, fam) {
			out = append(out, fam)
		} else {
			complete = complete && !offered
		}
	}
	if complete {
		return nil
	}
	return out
}

// hasFamily reports whether a Service has a family, according to its ClusterIPs, or to its
// endpoints if it has none.
func hasFamily(s *model.Service, fam int) bool {
	if len(s.ClusterIPs) > 0 {
		_, ok := ofFamily(s.ClusterIPs, fam)
		return ok
	}
	return len(s.Endpoints) == 0 || slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool {
		_, ok := ofFamily(e.Addrs, fam)
		return ok
	})
}
