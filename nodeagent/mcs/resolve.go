package mcs

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

// ResolvedExport is one exported name of the clusterset, merged from all clusters that export it.
type ResolvedExport struct {
	Namespace string
	Name      string
	Declared  *fabric.Export // as in the topology; nil if dynamic
	Type      string         // fabric.ClusterSetIP | fabric.Headless
	Ports     []Port         // the union, sorted
	Families  []int          // of all parts, the oldest first
	Affinity  string
	// AffinitySeconds and the following fields are from the oldest export.
	AffinitySeconds       int
	InternalTrafficPolicy string
	TrafficDistribution   string
	Labels                map[string]string
	Annotations           map[string]string
	Parts                 []ClusterOffer // the oldest first
	Conflict              Condition
	DesiredVIPs           []netip.Addr // desired clusterset IPs in this cluster, in the order of Families; none for Headless
	VIPs                  []netip.Addr // the recorded part of DesiredVIPs
	Full                  bool         // no clusterset IP is left
	Absent                bool         // the namespace does not exist in this cluster
	ForeignImport         bool         // another controller has an import of that name in this cluster
}

// ClusterOffer is one cluster's part of an export.
type ClusterOffer struct {
	Cluster string
	Offer   *Offer
	Addrs   []netip.Addr  // by which other clusters reach it; none for Headless
	Hosts   []fabric.Host // of a headless export of this cluster; other clusters send theirs with the endpoints
	Ports   []Port        // the ports of the export that this cluster has
}

// ID is namespace/name.
func (r *ResolvedExport) ID() string { return r.Namespace + "/" + r.Name }

// Decision is the result of Decide.
type Decision struct {
	Exports  []ExportResult   // of this cluster's ServiceExports
	Services []ResolvedExport // dynamic exports, and declared exports with an offer; sorted by namespace/name
	Refused  []Refusal        // exports of other clusters that the topology does not allow; sorted by cluster, namespace and name
}

// Refusal is an export of another cluster in a namespace that the topology reserves for others.
type Refusal struct {
	Cluster   string // that exports it
	Namespace string
	Name      string
	Clusters  []string // that may export it
}

// MaxRefusals limits the reported refusals of one cluster.
const MaxRefusals = 8

// Decide merges the exports of all clusters. Every cluster with the same input gets the same
// result, except for clusterset IPs, which each cluster allocates.
func Decide(w ClusterView) Decision {
	own := w.Fabric.Cluster(w.Cluster)
	if own == nil || w.Fabric.Decommission {
		return Decision{}
	}
	t := indexOf(w.Fabric)
	d := Decision{Exports: exportResults(w, own, t)}
	parts := map[string][]ClusterOffer{}
	for i := range d.Exports {
		if v := &d.Exports[i]; v.Offer != nil {
			parts[v.Export.id()] = append(parts[v.Export.id()], ClusterOffer{Cluster: own.Name, Offer: v.Offer.shared(), Addrs: v.Offer.Addrs, Hosts: v.RecordedHosts})
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(w.Offers)) {
		if c := w.Fabric.Cluster(cluster); c != nil && cluster != own.Name {
			t.addOffers(parts, c, w.Offers[cluster])
			d.Refused = append(d.Refused, t.refusals(cluster, w.Offers[cluster])...)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		namespace, name, _ := strings.Cut(id, "/")
		d.Services = append(d.Services, resolve(namespace, name, t.declared[id], parts[id]))
	}
	slices.SortFunc(d.Services, func(a, b ResolvedExport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	taken := map[string]bool{}
	for i := range w.Imports {
		if m := &w.Imports[i]; m.Foreign {
			taken[m.id()] = true
		}
	}
	for i := range d.Services {
		r := &d.Services[i]
		r.Absent = !w.exists(r.Namespace)
		if r.ForeignImport = taken[r.ID()]; r.ForeignImport {
			r.Conflict = r.Conflict.withImportConflict(own.Name)
		}
	}
	allocateVIPs(w, own, t, d.Services)
	return d
}

// addOffers appends the offers of cluster c that the topology allows to parts.
func (t *topology) addOffers(parts map[string][]ClusterOffer, c *fabric.Cluster, offers []NamedOffer) {
	var requests []AllocationRequest
	accepted := t.acceptedOffers(c.Name, offers)
	for _, o := range accepted {
		request := AllocationRequest{Key: o.id(), Created: o.Offer.Created, Families: []int{4, 6}, AlsoAllowed: c.GlobalCIDRs}
		if t.declared[o.id()] == nil {
			request.Current = o.Offer.Addrs
		}
		requests = append(requests, request)
	}
	// Only the exporting cluster allocates; here its recorded addresses are checked.
	for i, held := range keptAddrs(c.Dynamic, t.allocatedIn(c), requests) {
		o := accepted[i]
		part := ClusterOffer{Cluster: c.Name, Offer: o.Offer.shared()}
		for _, a := range o.Offer.Addrs {
			if slices.Contains(held, a) {
				part.Addrs = append(part.Addrs, a)
			}
		}
		parts[o.id()] = append(parts[o.id()], part)
	}
}

// acceptedOffers returns the accepted offers of a cluster.
func (t *topology) acceptedOffers(cluster string, offers []NamedOffer) []*NamedOffer {
	var declared, dynamic []*NamedOffer
	for i := range offers {
		o := &offers[i]
		e := t.declared[o.id()]
		switch {
		case o.Offer == nil || o.Offer.Check() != nil:
		case e != nil && e.ClusterPart(cluster) != nil:
			declared = append(declared, o)
		case e == nil && t.fabric.DynamicExports.Allows(o.Namespace, cluster):
			dynamic = append(dynamic, o)
		}
	}
	for _, n := range youngestBeyondMax(len(dynamic), func(n int) (time.Time, string) { return dynamic[n].Offer.Created, dynamic[n].id() }) {
		dynamic[n] = nil
	}
	return append(declared, slices.DeleteFunc(dynamic, func(o *NamedOffer) bool { return o == nil })...)
}

// refusals returns the first MaxRefusals offers in namespaces that are reserved for other clusters.
func (t *topology) refusals(cluster string, offers []NamedOffer) []Refusal {
	var out []Refusal
	for i := range offers {
		o := &offers[i]
		d := t.fabric.DynamicExports
		if t.declared[o.id()] != nil || !d.Matches(o.Namespace) || d.Allows(o.Namespace, cluster) {
			continue
		}
		only, _ := d.AllowedClusters(o.Namespace)
		out = append(out, Refusal{Cluster: cluster, Namespace: o.Namespace, Name: o.Name, Clusters: only})
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), MaxRefusals)]
}

// resolve applies KEP-1645's conflict resolution: the oldest export wins, and the ports are the
// union.
func resolve(namespace, name string, declared *fabric.Export, parts []ClusterOffer) ResolvedExport {
	slices.SortFunc(parts, func(a, b ClusterOffer) int {
		return cmp.Or(a.Offer.Created.Compare(b.Offer.Created), cmp.Compare(a.Cluster, b.Cluster))
	})
	oldest := parts[0].Offer
	// Oldest first: a port is not added if its name, or its protocol and number, exist already.
	var out []Port
	for i := range parts {
		for _, p := range parts[i].Offer.Ports {
			taken := func(q Port) bool { return q.Name == p.Name || samePort(q, p) }
			if !slices.ContainsFunc(out, taken) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, comparePorts)
	r := ResolvedExport{
		Namespace: namespace, Name: name, Declared: declared, Parts: parts, Type: typeOf(oldest),
		Affinity: oldest.Affinity, AffinitySeconds: oldest.AffinitySeconds,
		InternalTrafficPolicy: oldest.InternalTrafficPolicy, TrafficDistribution: oldest.TrafficDistribution,
		Labels: oldest.Labels, Annotations: oldest.Annotations, Ports: out,
	}
	for _, p := range parts {
		for _, fam := range p.Offer.Families {
			if !slices.Contains(r.Families, fam) {
				r.Families = append(r.Families, fam)
			}
		}
	}
	if declared != nil {
		r.declare(declared)
	}
	for i := range r.Parts {
		r.Parts[i].Ports = r.portsOf(&r.Parts[i])
	}
	r.Conflict = conflictCondition(&r)
	return r
}

func typeOf(o *Offer) string {
	if o.Headless {
		return fabric.Headless
	}
	return fabric.ClusterSetIP
}

// declare overrides the fields that the topology declares.
func (r *ResolvedExport) declare(e *fabric.Export) {
	r.Type, r.Affinity = e.Type, e.Affinity
	switch {
	case r.Affinity == "":
		r.AffinitySeconds = 0
	case r.AffinitySeconds == 0:
		r.AffinitySeconds = defaultAffinitySeconds
	}
	r.Ports = nil
	for _, p := range e.Ports {
		r.Ports = append(r.Ports, Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
	}
	slices.SortFunc(r.Ports, comparePorts)
}

func samePort(a, b Port) bool { return a.Protocol == b.Protocol && a.Port == b.Port }

// portsOf returns the ports of the export that a part has.
func (r *ResolvedExport) portsOf(p *ClusterOffer) []Port {
	var out []Port
	for _, port := range r.Ports {
		if slices.ContainsFunc(p.Offer.Ports, func(q Port) bool { return samePort(port, q) }) {
			out = append(out, port)
		}
	}
	return out
}

// allocateVIPs allocates the clusterset IPs of dynamic ClusterSetIP exports.
func allocateVIPs(w ClusterView, own *fabric.Cluster, t *topology, services []ResolvedExport) {
	if w.Fabric.DynamicExports == nil {
		return
	}
	held := make(map[string]*Import, len(w.Imports))
	for i := range w.Imports {
		held[w.Imports[i].id()] = &w.Imports[i]
	}
	var requests []AllocationRequest
	var serviceIndexes []int
	for i := range services {
		r := &services[i]
		if r.Declared != nil || r.Type == fabric.Headless {
			continue
		}
		request := AllocationRequest{Key: r.ID(), Families: familiesIn(own, r.Families), Created: r.Parts[0].Offer.Created, AlsoAllowed: w.Fabric.ServicePools}
		if have := held[r.ID()]; have != nil {
			request.Current, request.Created = have.IPs, have.Created
		}
		requests, serviceIndexes = append(requests, request), append(serviceIndexes, i)
	}
	for n, g := range Allocate(w.Fabric.DynamicExports.VIPs, t.isAllocatedVIP, requests) {
		r := &services[serviceIndexes[n]]
		r.DesiredVIPs, r.VIPs, r.Full = g.Addrs, g.Addrs, len(g.Full) > 0
		// Without an import of ours in this cluster the address is not recorded. All
		// gateways then compute the same address, as without an API.
		if w.HasAPI && !r.ForeignImport && !r.Absent {
			r.VIPs = g.Recorded
		}
	}
}
