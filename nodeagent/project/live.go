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
	if !v.own.Globalnet {
		return m.Addrs
	}
	if m.host == nil {
		return v.mappedAddrs(m.Addrs)
	}
	var out []netip.Addr
	for _, ip := range m.host.IPs {
		if _, ok := ofFamily(m.Addrs, family(ip)); ok {
			out = append(out, ip)
		}
	}
	return out
}
