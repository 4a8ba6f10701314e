package project

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// LiveState gives what this cluster tells the others: which of its exports have
// ready endpoints, and for headless ones the address by which others reach each.
// It depends on fabric and facts only, so every node of a cluster that knows the
// same says the same.
func LiveState(in Input) Live {
	out := Live{Cluster: in.Cluster}
	v := newView(in)
	if v == nil {
		return out
	}
	for _, e := range v.exports {
		part := exportPart(e, v.own.Name)
		if part == nil {
			continue
		}
		svc := v.services[e.ID()]
		live := LiveExport{Namespace: e.Namespace, Name: e.Name}
		if e.Type == fabric.Headless {
			live.Hosts = v.liveHosts(part, svc)
			live.Ready = len(live.Hosts) > 0
		} else {
			live.Ready = serving(e, svc)
			live.Families = partial(part.IPs, svc)
		}
		out.Exports = append(out.Exports, live)
	}
	return out
}

func (v *view) liveHosts(part *fabric.ExportCluster, svc *Service) []LiveHost {
	var out []LiveHost
	for _, m := range members(part, svc) {
		if !m.Ready {
			continue
		}
		if ips := v.addressesOutside(m); len(ips) > 0 {
			out = append(out, LiveHost{Name: m.Hostname, IPs: sortedAddrs(ips)})
		}
	}
	slices.SortFunc(out, func(a, b LiveHost) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.IPs, b.IPs, netip.Addr.Compare))
	})
	return out
}

// addressesOutside are those by which other clusters reach an endpoint: its own
// in a flat cluster, otherwise its fixed global address, otherwise the one that
// mapped egress gives it.
func (v *view) addressesOutside(m member) []netip.Addr {
	var out, hidden []netip.Addr
	for _, a := range m.Addrs {
		if v.own.Hides(family(a)) {
			hidden = append(hidden, a)
		} else {
			out = append(out, a)
		}
	}
	if m.host == nil {
		return append(out, v.mappedAddrs(hidden)...)
	}
	for _, ip := range m.host.IPs {
		if _, ok := ofFamily(hidden, family(ip)); ok {
			out = append(out, ip)
		}
	}
	return out
}

// partial gives the families that a service has, where an export has addresses of
// more: a service of a cluster with both may have one. What Kubernetes gave it
// counts, and of a service without an address its endpoints.
func partial(ips []netip.Addr, svc *Service) []int {
	if svc == nil {
		return nil
	}
	var out []int
	whole := true
	for _, fam := range []int{4, 6} {
		_, offered := ofFamily(ips, fam)
		if svc.has(fam) {
			out = append(out, fam)
		} else {
			whole = whole && !offered
		}
	}
	if whole {
		return nil
	}
	return out
}

// has reports whether a service has a family.
func (s *Service) has(fam int) bool {
	if len(s.ClusterIPs) > 0 {
		_, ok := ofFamily(s.ClusterIPs, fam)
		return ok
	}
	return len(s.Endpoints) == 0 || slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool {
		_, ok := ofFamily(e.Addrs, fam)
		return ok
	})
}
