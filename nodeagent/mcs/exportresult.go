package mcs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Types of conditions and their reasons (KEP-1645, api/v1beta1).
const (
	Valid    = "Valid"
	Ready    = "Ready"
	Conflict = "Conflict"
	// Supported is a condition of Hawser. It is False if other clusters do not support a part
	// of the Service, and otherwise absent.
	Supported = "hawser.dev/Supported"

	reasonValid       = "Valid"
	reasonNoService   = "NoService"
	reasonServiceType = "InvalidServiceType"
	// NotAllowed is a reason of Hawser: KEP-1645 has none for exports that the administrator
	// refuses.
	NotAllowed = "NotAllowed"
	// reasonImportConflict is a reason of Hawser: KEP-1645 assumes a single implementation.
	reasonImportConflict = "ImportConflict"
	reasonExported       = "Exported"
	reasonReady          = "Ready"
	reasonPending        = "Pending"
	reasonFailed         = "Failed"
	reasonNoFamily       = "IPFamilyNotSupported"
	reasonNoConflicts    = "NoConflicts"
	reasonUnsupported    = "Unsupported"
)

// ExportResult is the result for one ServiceExport of this cluster.
type ExportResult struct {
	Export        *Export
	Declared      *fabric.Export // as in the topology; nil if dynamic
	Valid         Condition
	Ready         Condition
	Addrs         []netip.Addr  // desired addresses of a ClusterSetIP export that is or may become dynamic
	Hosts         []fabric.Host // desired addresses of the pods of a dynamic headless export, sorted by name
	RecordedHosts []fabric.Host // the recorded part of Hosts
	Full          bool          // some pod has no free address
	Offer         *Offer        // sent to other clusters; nil if not valid
}

// exportResults returns the results for the ServiceExports of this cluster, sorted by namespace/name.
func exportResults(w ClusterView, own *fabric.Cluster, t *topology) []ExportResult {
	out := make([]ExportResult, 0, len(w.Exports))
	for i := range w.Exports {
		e := &w.Exports[i]
		v := ExportResult{Export: e, Declared: t.declared[e.id()]}
		v.Valid = v.check(w)
		if v.Valid.Status == isTrue {
			v.Offer = offerOf(e, own)
		}
		out = append(out, v)
	}
	// If there are too many dynamic exports, the youngest are invalid.
	var at []int
	for i := range out {
		if out[i].Offer != nil && out[i].Declared == nil {
			at = append(at, i)
		}
	}
	for _, n := range youngestBeyondMax(len(at), func(n int) (time.Time, string) {
		return out[at[n]].Export.Created, out[at[n]].Export.id()
	}) {
		v := &out[at[n]]
		v.Offer = nil
		v.Valid = Condition{Valid, isFalse, NotAllowed, fmt.Sprintf(
			"this cluster has more than %d exports that the topology does not declare: declare some in spec.exports", MaxOffers)}
	}
	slices.SortFunc(out, func(a, b ExportResult) int {
		return cmp.Or(cmp.Compare(a.Export.Namespace, b.Export.Namespace), cmp.Compare(a.Export.Name, b.Export.Name))
	})
	allocateExportAddrs(out, own, t, w)
	return out
}

// Statuses of a condition.
const (
	isTrue    = "True"
	isFalse   = "False"
	isUnknown = "Unknown"
)

// MissingService returns the text for an export without a Service, for conditions and problems.
func MissingService(id string) string { return "there is no Service " + id }

// ExternalService returns the text for an export of a Service without endpoints, for conditions and
// problems.
func ExternalService(id string) string {
	return "Service " + id + " is of type ExternalName, which cannot be exported: export a Service with endpoints, or resolve its externalName in each cluster"
}

// check returns the condition Valid of a ServiceExport; its message names the required change. The
// status is Unknown if the agent's fabric may be outdated: the reconciler rendered the
// ServiceExport, but the fabric does not declare it.
func (v *ExportResult) check(w ClusterView) Condition {
	no := func(reason, message string) Condition { return Condition{Valid, isFalse, reason, message} }
	e, id := v.Export, v.Export.id()
	refused := func(format string, args ...any) Condition {
		if e.Rendered {
			return Condition{Valid, isUnknown, reasonPending, fmt.Sprintf(
				"the agents have fabric %s, which does not export %s from %s: they wait for the fabric with this ServiceExport, or for its deletion", w.Digest, id, w.Cluster)}
		}
		return no(NotAllowed, fmt.Sprintf(format, args...)+", and wait until the agents have that fabric")
	}
	switch {
	case v.Declared != nil && v.Declared.ClusterPart(w.Cluster) == nil:
		return refused("the topology exports %s from other clusters only: add %s to spec.exports[%s].clusters", id, w.Cluster, id)
	case v.Declared == nil && !w.Fabric.DynamicExports.Matches(e.Namespace):
		return refused("namespace %s matches none of spec.dynamicExports.namespaces of the topology, "+
			"and spec.exports does not have %s: add it to one of them", e.Namespace, id)
	case v.Declared == nil && !w.Fabric.DynamicExports.Allows(e.Namespace, w.Cluster):
		only, _ := w.Fabric.DynamicExports.AllowedClusters(e.Namespace)
		return refused("the topology lets only %s export from namespace %s: add %s to spec.dynamicExports[].clusters",
			strings.Join(only, ", "), e.Namespace, w.Cluster)
	case e.Service == nil:
		return no(reasonNoService, MissingService(id))
	case e.Service.Type == "ExternalName":
		return no(reasonServiceType, ExternalService(id))
	}
	if err := offerOf(e, w.Fabric.Cluster(w.Cluster)).Check(); err != nil {
		return no(NotAllowed, err.Error())
	}
	return Condition{Valid, isTrue, reasonValid, "Service " + id + " can be exported"}
}

func offerOf(e *Export, own *fabric.Cluster) *Offer {
	s := e.Service
	o := &Offer{
		Created: e.Created.UTC(), Headless: s.Headless, Ports: slices.Clone(s.Ports), Families: familiesIn(own, s.Families),
		InternalTrafficPolicy: s.InternalTrafficPolicy, TrafficDistribution: s.TrafficDistribution,
		Labels: e.Labels, Annotations: e.Annotations,
	}
	for i := range o.Ports {
		o.Ports[i].Protocol = strings.ToUpper(cmp.Or(o.Ports[i].Protocol, "TCP"))
	}
	slices.SortFunc(o.Ports, comparePorts)
	if s.Affinity == clientIP {
		o.Affinity, o.AffinitySeconds = clientIP, cmp.Or(s.AffinitySeconds, defaultAffinitySeconds)
	}
	return o
}

const (
	clientIP               = "ClientIP"
	defaultAffinitySeconds = 10800 // default of Kubernetes
)

// requester is the subject of an AllocationRequest: an export, or a pod of a headless export.
type requester struct {
	*ExportResult
	host string // of a headless export; empty = the export itself
}

// allocateExportAddrs allocates addresses of dynamic exports and sets their condition Ready.
func allocateExportAddrs(list []ExportResult, own *fabric.Cluster, t *topology, w ClusterView) {
	requests, requesters := allocationRequests(list, own, w)
	for n, g := range Allocate(own.Dynamic, t.allocatedIn(own), requests) {
		v := requesters[n]
		if v.host != "" {
			v.Full = v.Full || len(g.Full) > 0
			if len(g.Addrs) > 0 {
				v.Hosts = append(v.Hosts, fabric.Host{Name: v.host, IPs: g.Addrs})
			}
			used := g.Addrs
			if w.HasAPI {
				used = g.Recorded
			}
			if len(used) > 0 {
				v.RecordedHosts = append(v.RecordedHosts, fabric.Host{Name: v.host, IPs: used})
			}
			continue
		}
		v.Addrs, v.Offer.Addrs = g.Addrs, g.Addrs
		if w.HasAPI {
			v.Offer.Addrs = g.Recorded
		}
		v.Ready = readyOf(v.ExportResult, own, g)
	}
	for i := range list {
		v := &list[i]
		if v.Offer != nil && v.Declared != nil && !v.Offer.Headless && w.Fabric.DynamicExports.Allows(v.Export.Namespace, w.Cluster) {
			// Recorded and sent in advance, in case the export leaves the topology.
			v.Addrs = v.Declared.ClusterPart(w.Cluster).IPs
			v.Offer.Addrs = v.Addrs
		}
		switch {
		case v.Valid.Status == isUnknown:
			v.Ready = Condition{Ready, isUnknown, reasonPending, "it is not known to be valid"}
		case v.Offer == nil:
			v.Ready = Condition{Ready, isFalse, reasonPending, "it is not valid"}
		case v.Ready.Type == "":
			v.Ready = v.readyHosts(own)
		}
		for _, hosts := range [][]fabric.Host{v.Hosts, v.RecordedHosts} {
			slices.SortFunc(hosts, func(a, b fabric.Host) int { return cmp.Compare(a.Name, b.Name) })
		}
	}
}

// allocationRequests returns the requests for addresses of this cluster.
func allocationRequests(list []ExportResult, own *fabric.Cluster, w ClusterView) (requests []AllocationRequest, requesters []requester) {
	for i := range list {
		v := &list[i]
		switch {
		case v.Offer == nil || v.Declared != nil:
		case v.Offer.Headless:
			more, names := hostRequests(v, own, w.Hostnames)
			requests = append(requests, more...)
			for _, name := range names {
				requesters = append(requesters, requester{v, name})
			}
		default:
			requests = append(requests, AllocationRequest{Key: v.Export.id(), Created: v.Export.Created, Families: v.Offer.Families, Current: v.Export.Addrs,
				InUse: v.Export.AddressesConfirmed, AlsoAllowed: own.GlobalCIDRs})
			requesters = append(requesters, requester{v, ""})
		}
	}
	return requests, requesters
}

func readyOf(v *ExportResult, own *fabric.Cluster, g AllocationResult) Condition {
	switch {
	case len(v.Offer.Addrs) > 0:
		return Condition{Ready, isTrue, reasonExported, "exported from cluster " + own.Name + exportedAt + humanize.Join(v.Offer.Addrs, ", ")}
	case len(g.Addrs) > 0:
		return Condition{Ready, isFalse, reasonPending, "no address is recorded yet"}
	case len(g.Full) > 0:
		return Condition{Ready, isFalse, reasonFailed, fmt.Sprintf(
			"no address is left in %s of cluster %s: give the cluster a larger globalCIDR, or export less", humanize.Join(own.Dynamic, ", "), own.Name)}
	}
	return Condition{Ready, isFalse, reasonFailed, "the topology has no addresses for dynamic exports in a family of the Service"}
}
