package projection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// metadataServers are addresses of cloud metadata services, without the link-local addresses.
var metadataServers = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")      // RFC 1122
	broadcast   = netip.MustParseAddr("255.255.255.255")  // RFC 919
	nat64       = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64Local  = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
)

// neverEndpoint returns the reason why no endpoint of any cluster may have an address; empty = it
// may. The API server also refuses loopback and link-local endpoints, but files may contain them.
func neverEndpoint(a netip.Addr) string {
	switch {
	case a.IsLoopback(), a.IsUnspecified(), thisNetwork.Contains(a):
		return "is an address of the node itself"
	case a.IsLinkLocalUnicast():
		return "is link-local"
	case a.IsMulticast(), a == broadcast:
		return "is a multicast or broadcast address"
	case slices.Contains(metadataServers, a):
		return "is the metadata service of a cloud"
	case nat64Local.Contains(a):
		return "may be any IPv4 address (NAT64)"
	case nat64.Contains(a):
		raw := a.As16()
		return neverEndpoint(netip.AddrFrom4([4]byte(raw[12:])))
	}
	return ""
}

// addServices indexes the Services of this cluster, without the endpoints that an export must
// not reach.
func (v *builder) addServices() {
	for i := range v.in.Facts.Services {
		svc := &v.in.Facts.Services[i]
		id := svc.Namespace + "/" + svc.Name
		if svc.ExternalName {
			v.externalNames[id] = true
			continue
		}
		v.services[id] = svc
		v.unsupported[id] = slices.Clone(svc.Unsupported)
		refused := func(ep *model.Endpoint) bool {
			return slices.ContainsFunc(ep.Addrs, func(a netip.Addr) bool { return v.refusal(a) != "" })
		}
		var kept []model.Endpoint
		for j := range svc.Endpoints {
			ep := &svc.Endpoints[j]
			if !refused(ep) {
				if kept != nil {
					kept = append(kept, *ep)
				}
				continue
			}
			if kept == nil {
				kept = append(make([]model.Endpoint, 0, len(svc.Endpoints)), svc.Endpoints[:j]...)
			}
			for _, a := range ep.Addrs {
				if why := v.refusal(a); why != "" {
					v.unsupported[id] = append(v.unsupported[id], "endpoint "+a.String()+": it "+why)
				}
			}
		}
		if kept != nil {
			without := *svc
			without.Endpoints = kept
			v.services[id] = &without
		}
	}
}

// addLongNames records exports of this cluster, and pods of its headless exports, whose DNS names
// are longer than DNS allows. The name server has no record for them.
func (v *builder) addLongNames() {
	domains := append([]string{v.in.Fabric.Domain}, v.in.Fabric.ExtraDomains...)
	add := func(id, what, name string) {
		if len(name) > fabric.MaxName {
			v.unsupported[id] = append(v.unsupported[id], fmt.Sprintf("%s has no DNS record: the name %s is too long "+
				"(%d octets, %d are allowed); shorten the names of the pod, cluster, service or namespace, or the domain",
				what, name, len(name), fabric.MaxName))
		}
	}
	for _, e := range v.exports {
		if e.ClusterPart(v.self.Name) == nil {
			continue
		}
		id := e.ID()
		svc := v.services[id]
		if svc == nil {
			continue
		}
		add(id, "the Service", fabric.LongestName(domains, e.Namespace, e.Name))
		part := fabric.LongestName(domains, e.Namespace, e.Name, v.self.Name)
		add(id, "cluster "+v.self.Name, part)
		if e.Type != fabric.Headless {
			continue
		}
		for i := range svc.Endpoints {
			ep := &svc.Endpoints[i]
			label := ep.Hostname
			if label == "" && len(ep.Addrs) > 0 {
				label = cidr.Label(slices.MinFunc(ep.Addrs, netip.Addr.Compare))
			}
			if label != "" && len(label)+len(".")+len(part) > fabric.MaxName {
				add(id, "pod "+cmp.Or(ep.Pod, label), fabric.LongestName(domains, e.Namespace, e.Name, label, v.self.Name))
			}
		}
	}
}

// refusal returns the reason why an export must not lead to an endpoint's address; empty = it may.
// An EndpointSlice may contain any address. This cluster's gateways would send packets of other
// clusters to that address, with their own source address.
func (v *builder) refusal(a netip.Addr) string {
	if why := neverEndpoint(a); why != "" {
		return why
	}
	if contains(v.self.PodCIDRs, a) || v.isNode(a) {
		return ""
	}
	f := v.in.Fabric
	switch {
	case slices.Contains(f.DNS.Addresses(), a):
		return "is the agents' name server"
	case contains(f.GlobalPools, a), contains(f.ServicePools, a), contains(f.TunnelPools, a), contains(v.self.GlobalCIDRs, a):
		return "belongs to the clusterset"
	case contains(v.self.ServiceCIDRs, a):
		return "is a ClusterIP, and endpoints are no Services"
	}
	for _, r := range v.remotes {
		if r.isDestination(a) {
			return "belongs to cluster " + r.Name
		}
	}
	for i := range f.Clusters {
		for _, g := range f.Clusters[i].Gateways {
			for _, text := range g.Endpoints {
				if e, err := fabric.ParseEndpoint(text); err == nil && e.Addr == a {
					return "is an endpoint of gateway " + f.Clusters[i].Name + "/" + g.Name
				}
			}
		}
	}
	return ""
}

// endpointKind classifies the address of an endpoint.
type endpointKind int

const (
	inside          endpointKind = iota // in podCIDRs, or of a node: a pod on the host network
	outsidePodCIDRs                     // on a node of this cluster and not in podCIDRs
	machine                             // a machine outside the cluster, not a pod
)

func (v *builder) kindOf(ep *model.Endpoint, a netip.Addr) endpointKind {
	switch {
	case contains(v.self.PodCIDRs, a) || v.isNode(a):
		return inside
	case v.nodeNamed(ep.Node) != nil:
		return outsidePodCIDRs
	}
	return machine
}

// addExternalEndpoint makes gateways translate the source of other clusters' packets to an endpoint
// that is not a pod. Such a machine has no route to other clusters' addresses.
func (v *builder) addExternalEndpoint(ep *model.Endpoint, a netip.Addr, protocol string, port int, origin string) {
	if v.gateway != nil && v.kindOf(ep, a) == machine {
		v.elements.add(desired.Element{
			Set: desired.SetExternalEndpoints, Family: fabric.Family(a), ID: serviceKey(a, protocol, port), Origin: origin,
		})
	}
}

// reportForeignRules reports routing rules of other programs.
func (v *builder) reportForeignRules() {
	if len(v.in.Local.ForeignRules) > 0 {
		v.problem(clusterPath(v.self.Name), status.ForeignRule, desired.ForeignRuleText(v.in.Local.ForeignRules)+" on node "+v.in.Node)
	}
}

// maxShown is the maximum number of texts in a problem.
const maxShown = 3

// reportUnsupported reports the unsupported parts of an export of this cluster.
func (v *builder) reportUnsupported(e *fabric.Export) {
	for _, text := range shorten(v.unsupported[e.ID()]) {
		v.problem(exportPath(e.ID(), v.self.Name), status.EndpointUnsupported, text)
	}
}

// shorten returns the first maxShown texts of a list, sorted, and the number of omitted texts.
func shorten(list []string) []string {
	out := slices.Sorted(slices.Values(list))
	out = slices.Compact(out)
	if more := len(out) - maxShown; more > 0 {
		out = append(out[:maxShown:maxShown], fmt.Sprintf("and %d more", more))
	}
	return out
}

// reportPodsOutside reports pods outside of podCIDRs: pods of this node, according to the kernel's
// routes and EndpointSlices, and endpoints of exports on any node. Node.spec.podCIDRs alone
// proves nothing, because some CNIs do not use it.
func (v *builder) reportPodsOutside() {
	var here, all []string
	for _, e := range v.exports {
		svc := v.services[e.ID()]
		if svc == nil || e.ClusterPart(v.self.Name) == nil {
			continue
		}
		for i := range svc.Endpoints {
			ep := &svc.Endpoints[i]
			for _, a := range ep.Addrs {
				if v.kindOf(ep, a) != outsidePodCIDRs {
					continue
				}
				all = append(all, a.String()+" ("+cmp.Or(ep.Pod, ep.Hostname, e.ID())+" on "+ep.Node+")")
				if ep.Node == v.in.Node {
					here = append(here, a.String())
				}
			}
		}
	}
	if v.node != nil {
		for _, p := range v.in.Local.PodRoutes {
			if !slices.ContainsFunc(v.self.PodCIDRs, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
				here = append(here, p.String())
			}
		}
	}
	path := clusterPath(v.self.Name) + ".podCIDRs"
	const fix = ": put the prefix of the pods into podCIDRs, or give the pods addresses there"
	has := "podCIDRs " + humanize.Join(v.self.PodCIDRs, ", ")
	if len(here) > 0 {
		v.problem(path, status.PodsOutsideCIDRs, "pods of node "+v.in.Node+" are outside of "+has+" ("+strings.Join(shorten(here), ", ")+
			"), so their packets to other clusters are dropped (unknown_source)"+fix)
	}
	if len(all) > 0 {
		v.problem(path, status.EndpointsOutsideCIDRs, "endpoints of exports are outside of "+has+" ("+strings.Join(shorten(all), ", ")+
			"), so these pods reach no other cluster, and none reaches them by name"+fix)
	}
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
