package project

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/mcs"
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
	offers := offersOf(in)
	for _, e := range v.exports {
		part := exportPart(e, v.own.Name)
		if part == nil {
			continue
		}
		svc := v.services[e.ID()]
		live := LiveExport{Namespace: e.Namespace, Name: e.Name, Offer: offers[e.ID()]}
		if e.Type == fabric.Headless {
			live.Hosts = v.liveHosts(part, svc)
			live.Ready = len(live.Hosts) > 0
		} else {
			live.Ready = serving(e, part, svc)
			live.Families = partial(part.IPs, svc)
		}
		out.Exports = append(out.Exports, live)
	}
	return out
}

// Until gives what may be said as long as a node carries what l says, and is about to
// carry next: what both have.
func (l Live) Until(next Live) Live {
	carried := make(map[string]*LiveExport, len(l.Exports))
	for i := range l.Exports {
		carried[l.Exports[i].Namespace+"/"+l.Exports[i].Name] = &l.Exports[i]
	}
	exports := next.Exports
	next.Exports = nil
	for _, e := range exports {
		now := carried[e.Namespace+"/"+e.Name]
		if now == nil {
			continue
		}
		e.Ready = e.Ready && now.Ready
		if e.Offer != nil && !reflect.DeepEqual(e.Offer, now.Offer) {
			e.Offer = now.Offer
		}
		e.Hosts = slices.DeleteFunc(slices.Clone(e.Hosts), func(h LiveHost) bool {
			return !slices.ContainsFunc(now.Hosts, func(n LiveHost) bool { return reflect.DeepEqual(h, n) })
		})
		if len(e.Hosts) == 0 {
			e.Hosts = nil
		}
		if len(now.Hosts) > 0 {
			e.Ready = len(e.Hosts) > 0
		}
		next.Exports = append(next.Exports, e)
	}
	return next
}

// offersOf gives what this cluster offers by its own ServiceExports.
func offersOf(in Input) map[string]*mcs.Offer {
	out := map[string]*mcs.Offer{}
	for _, v := range in.decision().Verdicts {
		if v.Offer != nil {
			out[v.Export.Namespace+"/"+v.Export.Name] = v.Offer
		}
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
			host := LiveHost{Name: m.Hostname, IPs: sortedAddrs(ips)}
			if host.Name == "" {
				host.Label = dashed(m.Addrs)
			}
			if m.host == nil || !slices.ContainsFunc(m.host.IPs, func(a netip.Addr) bool { return slices.Contains(ips, a) }) {
				host.Ports = m.renumbered()
			}
			out = append(out, host)
		}
	}
	slices.SortFunc(out, func(a, b LiveHost) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.IPs, b.IPs, netip.Addr.Compare))
	})
	return out
}

// renumbered gives the ports that have another number on the endpoint.
func (e *Endpoint) renumbered() map[string]int {
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

// dashed makes the label by which an endpoint without a hostname has its name: its
// address, in full for IPv6, as :: would leave one that begins or ends with a hyphen.
func dashed(addrs []netip.Addr) string {
	addr := slices.MinFunc(addrs, netip.Addr.Compare)
	if addr.Is4() {
		return strings.ReplaceAll(addr.String(), ".", "-")
	}
	return strings.ReplaceAll(addr.WithZone("").StringExpanded(), ":", "-")
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
