package mcs

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/fabric"
)

// Names of the ClusterProperties (KEP-2149).
const (
	PropertyCluster    = "cluster.clusterset.k8s.io"
	PropertyClusterset = "clusterset.k8s.io"
)

// Backend has the addresses at which this cluster reaches one cluster's part of an export.
type Backend struct {
	Cluster string
	Addrs   []netip.Addr // ClusterSetIP, while some endpoint gets connections
	// Terminating means that all these endpoints terminate.
	Terminating bool
	Hosts       []Host // Headless: the ready endpoints
}

// Host is one ready endpoint of a headless export.
type Host struct {
	Name  string // name of its DNS record
	Addrs []netip.Addr
	// Ports has the endpoint's port numbers that differ from the export's, by protocol and
	// number, as in TCP/80.
	Ports map[string]int
}

// Desired returns the desired objects of the cluster's API. d is the result of Decide for w and is
// not changed. peersSynced is the value of PeersSynced. sources has the reachable backends by
// namespace/name.
func Desired(w ClusterView, d Decision, peersSynced bool, sources map[string][]Backend) DesiredObjects {
	own := w.Fabric.Cluster(w.Cluster)
	if own == nil || w.Fabric.Decommission {
		return DesiredObjects{PeersSynced: peersSynced}
	}
	s := DesiredObjects{
		PeersSynced: peersSynced, Exports: statuses(d, w.Unsupported),
		Property: map[string]string{PropertyCluster: w.Cluster, PropertyClusterset: w.Fabric.Name},
	}
	// Declared exports without an offer, such as the exports of clusters without a Kubernetes
	// API.
	offered := make(map[string]bool, len(d.Services))
	for i := range d.Services {
		offered[d.Services[i].ID()] = true
	}
	services := slices.Clone(d.Services)
	for i := range w.Fabric.Exports {
		e := &w.Fabric.Exports[i]
		if e.Dynamic || offered[e.ID()] {
			continue
		}
		r := ResolvedExport{Namespace: e.Namespace, Name: e.Name, Declared: e, Absent: !w.exists(e.Namespace)}
		r.declare(e)
		services = append(services, r)
	}
	for i := range services {
		r := &services[i]
		if r.Absent || r.Declared != nil && r.Declared.ClusterPart(w.Cluster) == nil && !r.Declared.Allows(w.Cluster) {
			continue
		}
		s.Imports = append(s.Imports, importOf(r, own))
		s.Slices = append(s.Slices, slicesOf(r, sources[r.ID()])...)
	}
	slices.SortFunc(s.Imports, func(a, b Import) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.Slices, func(a, b Slice) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

func importOf(r *ResolvedExport, own *fabric.Cluster) Import {
	m := Import{
		Namespace: r.Namespace, Name: r.Name, Type: r.Type, Ports: r.Ports, Affinity: r.Affinity, AffinitySeconds: r.AffinitySeconds,
		InternalTrafficPolicy: r.InternalTrafficPolicy, TrafficDistribution: r.TrafficDistribution,
		Labels: r.Labels, Annotations: r.Annotations, Families: familiesIn(own, r.Families),
	}
	ips := r.DesiredVIPs
	if r.Declared != nil {
		ips = r.Declared.VIPs
		for i := range r.Declared.Clusters {
			m.Clusters = append(m.Clusters, r.Declared.Clusters[i].Name)
		}
	} else {
		for i := range r.Parts {
			m.Clusters = append(m.Clusters, r.Parts[i].Cluster)
		}
	}
	slices.Sort(m.Clusters)
	if r.Type != fabric.Headless {
		var outIPs []netip.Addr
		var outFamilies []int
		for _, fam := range m.Families {
			if i := slices.IndexFunc(ips, func(a netip.Addr) bool { return fabric.Family(a) == fam }); i >= 0 {
				outIPs, outFamilies = append(outIPs, ips[i]), append(outFamilies, fam)
			}
		}
		m.IPs, m.Families = outIPs, outFamilies
	}
	m.Conditions = []Condition{readyImport(r, &m)}
	if len(m.Families) == 0 {
		m.Families = r.Families // the API requires a family
	}
	return m
}

func readyImport(r *ResolvedExport, m *Import) Condition {
	switch {
	case len(m.Families) == 0 && r.Full:
		return Condition{Ready, isFalse, reasonPending, "no clusterset IP is left: give spec.services.cidr of the topology more room"}
	case len(m.Families) == 0:
		return Condition{Ready, isFalse, reasonNoFamily, "this cluster has no IP family in common with the clusters that export it"}
	}
	return Condition{Ready, "True", reasonReady, "exported from " + strings.Join(m.Clusters, ", ")}
}

func statuses(d Decision, unsupported map[string][]string) []Status {
	conflicts := make(map[string]Condition, len(d.Services))
	for i := range d.Services {
		conflicts[d.Services[i].ID()] = d.Services[i].Conflict
	}
	out := make([]Status, 0, len(d.Exports))
	for i := range d.Exports {
		v := &d.Exports[i]
		e := v.Export
		s := Status{
			Namespace: e.Namespace, Name: e.Name, UID: e.UID, Generation: e.Generation, Addrs: v.Addrs, Hosts: v.Hosts,
			Conditions: []Condition{v.Valid, v.Ready},
		}
		if c, has := conflicts[e.id()]; has && v.Offer != nil {
			s.Conditions = append(s.Conditions, c)
		}
		if texts := unsupported[e.id()]; v.Offer != nil && len(texts) > 0 {
			s.Conditions = append(s.Conditions, Condition{Supported, isFalse, reasonUnsupported, joinUnsupported(texts)})
		}
		out = append(out, s)
	}
	return out
}

// maxUnsupported limits the texts in a condition: its message has at most 32 KiB.
const maxUnsupported = 8

func joinUnsupported(texts []string) string {
	texts = slices.Compact(slices.Sorted(slices.Values(texts)))
	if more := len(texts) - maxUnsupported; more > 0 {
		texts = append(texts[:maxUnsupported:maxUnsupported], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// maxEndpoints is the API's limit of endpoints in one slice.
const maxEndpoints = 1000

// slicesOf returns the slices of an import, one per source cluster, family and set of ports.
func slicesOf(r *ResolvedExport, sources []Backend) []Slice {
	byName := map[string]*Slice{}
	var names []string
	put := func(cluster string, ports []Port, endpoint Endpoint) {
		addr := endpoint.Addr
		fam := fabric.Family(addr)
		// The name does not depend on the endpoints, so the slice persists while they
		// change.
		sum := stablehash.Mix64(stablehash.Sum64(fmt.Sprintf("%s/%s/%d/%s", r.ID(), cluster, fam, portsText(ports))))
		name := r.Name + "-hw-" + hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, sum))
		s := byName[name]
		if s == nil {
			s = &Slice{Namespace: r.Namespace, Name: name, Import: r.Name, Cluster: cluster, Family: fam, Ports: ports}
			byName[name] = s
			names = append(names, name)
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	for _, src := range sources {
		ports := r.forwardedPorts(src.Cluster)
		for _, a := range src.Addrs {
			put(src.Cluster, ports, Endpoint{Addr: a, Terminating: src.Terminating})
		}
		for _, h := range src.Hosts {
			for _, a := range h.Addrs {
				put(src.Cluster, withNumbers(ports, h.Ports), Endpoint{Addr: a, Hostname: cmp.Or(h.Name, cidr.Label(a))})
			}
		}
	}
	var out []Slice
	slices.Sort(names)
	for _, name := range names {
		out = append(out, byName[name].split()...)
	}
	return out
}

// split sorts the endpoints and keeps each slice below the API's limit.
func (s *Slice) split() []Slice {
	slices.SortFunc(s.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Hostname, b.Hostname))
	})
	s.Endpoints = slices.CompactFunc(s.Endpoints, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	var out []Slice
	for chunk := range slices.Chunk(s.Endpoints, maxEndpoints) {
		part := *s
		part.Endpoints = chunk
		if len(out) > 0 {
			part.Name = fmt.Sprintf("%s-%d", s.Name, len(out)+1)
		}
		out = append(out, part)
	}
	return out
}

// forwardedPorts returns the ports that the data path forwards to a cluster's addresses: no SCTP.
func (r *ResolvedExport) forwardedPorts(cluster string) []Port {
	ports := r.Ports
	if i := slices.IndexFunc(r.Parts, func(p ClusterOffer) bool { return p.Cluster == cluster }); i >= 0 && r.Declared == nil {
		ports = r.Parts[i].Ports
	}
	return slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Protocol == "SCTP" })
}

// withNumbers returns ports with the numbers of an endpoint.
func withNumbers(ports []Port, numbers map[string]int) []Port {
	if len(numbers) == 0 {
		return ports
	}
	out := slices.Clone(ports)
	for i := range out {
		if number, has := numbers[fmt.Sprintf("%s/%d", out[i].Protocol, out[i].Port)]; has {
			out[i].Port = number
		}
	}
	return out
}
