package projection

import (
	"cmp"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// EffectiveFabric returns the fabric with the dynamic exports: the exports of ServiceExports in
// namespaces where the topology permits them. Without dynamic exports it returns the fabric
// itself. The decision can be reused as Input.MCSDecision.
func EffectiveFabric(in Input) (*fabric.Fabric, *mcs.Decision) {
	f, d := in.Fabric, mcs.Decide(mcsView(in))
	if f.DynamicExports == nil {
		return f, &d
	}
	out := *f
	out.Exports = slices.DeleteFunc(slices.Clone(f.Exports), func(e fabric.Export) bool { return e.Dynamic })
	out.Exports = append(out.Exports, d.Dynamic()...)
	slices.SortFunc(out.Exports, func(a, b fabric.Export) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return &out, &d
}

// decision returns MCSDecision, or computes it if the input lacks it.
func (in Input) decision() mcs.Decision {
	if in.MCSDecision != nil {
		return *in.MCSDecision
	}
	return mcs.Decide(mcsView(in))
}

// MCS returns the desired objects of the Multi-Cluster Services API in this cluster. The fabric
// of the input must be the effective fabric.
func MCS(in Input) mcs.DesiredObjects {
	v := newBuilder(in)
	if v == nil {
		return mcs.DesiredObjects{PeersSynced: in.PeersSynced}
	}
	v.addLongNames()
	sources := make(map[string][]mcs.Backend, len(v.exports))
	for _, e := range v.exports {
		sources[e.ID()] = v.mcsBackends(e)
	}
	view := mcsView(in)
	view.Unsupported = v.unsupported
	return mcs.Desired(view, in.decision(), in.PeersSynced, sources)
}

// Conflicts returns the conflicts between ServiceExports in the view of this cluster, by
// namespace/name.
func Conflicts(in Input) map[string]mcs.Condition {
	out := map[string]mcs.Condition{}
	for _, r := range in.decision().Services {
		if r.Conflict.Status == "True" {
			out[r.ID()] = r.Conflict
		}
	}
	return out
}

// reportInvalidExports reports this cluster's ServiceExports that are not valid.
func (v *builder) reportInvalidExports() {
	for _, verdict := range v.in.decision().Exports {
		path := "serviceexports[" + verdict.Export.Namespace + "/" + verdict.Export.Name + "]"
		switch {
		case verdict.Offer == nil:
			v.problem(path, status.ExportInvalid, verdict.Valid.Message)
		case verdict.Ready.Status != "True":
			v.problem(path, status.ExportNotReady, verdict.Ready.Message)
		}
	}
}

// reportRefusedExports reports exports that a cluster announces and the topology permits only to
// other clusters.
func (v *builder) reportRefusedExports() {
	for _, r := range v.in.decision().Refused {
		v.problem("serviceexports["+r.Namespace+"/"+r.Name+"]", status.ExportRefused, "cluster "+r.Cluster+" announces an export that the topology permits only to "+
			strings.Join(r.Clusters, ", ")+" (spec.dynamicExports[].clusters), so it is ignored")
	}
}

// reportForeignImports reports ServiceImports that Hawser should write but another program writes.
func (v *builder) reportForeignImports() {
	foreign := map[string]bool{}
	for i := range v.in.Facts.Imports {
		if m := &v.in.Facts.Imports[i]; m.Foreign {
			foreign[m.Namespace+"/"+m.Name] = true
		}
	}
	for _, e := range v.exports {
		if foreign[e.ID()] && (e.ClusterPart(v.self.Name) != nil || e.Allows(v.self.Name)) {
			v.problem("serviceimports["+e.ID()+"]", status.ImportConflict, "another program writes ServiceImport "+e.ID()+
				": stop it, or delete the ServiceImport if no program writes it; traffic continues")
		}
	}
}

// mcsBackends returns the addresses by which this cluster reaches each part of an export: the
// content of its DNS records.
func (v *builder) mcsBackends(e *fabric.Export) []mcs.Backend {
	var out []mcs.Backend
	for _, c := range v.dnsService(e).Clusters {
		s := mcs.Backend{Cluster: c.Name, Addrs: c.IPs}
		if r := v.byName[c.Name]; r != nil {
			s.Terminating = r.isTerminating(e.ID())
		} else {
			_, s.Terminating = serving(e, e.ClusterPart(c.Name), v.services[e.ID()])
		}
		for _, h := range c.Hosts {
			s.Hosts = append(s.Hosts, mcs.Host{Name: h.Name, Addrs: h.IPs, Ports: h.Ports})
		}
		out = append(out, s)
	}
	return out
}

// mcsView returns the input of the decision about exports. The restored state counts for
// clusters whose state has not arrived since the agent started.
func mcsView(in Input) mcs.ClusterView {
	view := mcs.ClusterView{
		Fabric: in.Fabric, Digest: in.Digest, Cluster: in.Cluster, Exports: in.Facts.Exports, Imports: in.Facts.Imports,
		Namespaces: in.Facts.Namespaces, HasAPI: in.Facts.HasAPI, Offers: map[string][]mcs.NamedOffer{}, Hostnames: Hostnames(in),
	}
	for i := range in.Fabric.Clusters {
		name := in.Fabric.Clusters[i].Name
		live, exists := in.ClusterStates[name]
		if !exists {
			live = in.RestoredClusterStates[name]
		}
		for j := range live.Exports {
			if e := &live.Exports[j]; e.Offer != nil {
				view.Offers[name] = append(view.Offers[name], mcs.NamedOffer{Namespace: e.Namespace, Name: e.Name, Offer: e.Offer})
			}
		}
	}
	return view
}

// Hostnames returns the hostnames of the endpoints of headless services, by namespace/name. It
// returns nil unless the cluster has shared egress: only there pods need separate global addresses
// to be reachable.
func Hostnames(in Input) map[string][]string {
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil || in.Fabric.DynamicExports == nil || !own.Globalnet || own.EgressMode == fabric.EgressMapped {
		return nil
	}
	out := map[string][]string{}
	for i := range in.Facts.Services {
		svc := &in.Facts.Services[i]
		for j := range svc.Endpoints {
			if name := svc.Endpoints[j].Hostname; name != "" && len(svc.ClusterIPs) == 0 {
				id := svc.Namespace + "/" + svc.Name
				out[id] = append(out[id], name)
			}
		}
	}
	return out
}

// hasPort reports whether a cluster's part of an export has port p.
func hasPort(part *fabric.ExportCluster, p fabric.Port) bool {
	return part.Ports == nil || slices.ContainsFunc(part.Ports, func(q fabric.Port) bool {
		return q.Protocol == p.Protocol && q.Port == p.Port
	})
}

// portsOf returns the ports of an export that a part has.
func portsOf(e *fabric.Export, part *fabric.ExportCluster) []fabric.Port {
	if part.Ports == nil {
		return e.Ports
	}
	return slices.DeleteFunc(slices.Clone(e.Ports), func(p fabric.Port) bool { return !hasPort(part, p) })
}
