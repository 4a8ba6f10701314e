package projection

import (
	"cmp"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// EffectiveFabric gives the fabric together with the exports that were made in clusters:
// with a ServiceExport in a namespace that the topology leaves to them. It is the
// fabric itself where there can be none. The decision is for Input.Decided.
func EffectiveFabric(in Input) (*fabric.Fabric, *mcs.Decision) {
	f, d := in.Fabric, mcs.Decide(worldOf(in))
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

// decision gives what was decided about exports, or decides.
func (in Input) decision() mcs.Decision {
	if in.MCSDecision != nil {
		return *in.MCSDecision
	}
	return mcs.Decide(worldOf(in))
}

// MCS gives what should stand in the API of this cluster: the objects of the
// Multi-Cluster Services API. The fabric of the input is the effective one.
func MCS(in Input) mcs.DesiredObjects {
	v := newView(in)
	if v == nil {
		return mcs.DesiredObjects{PeersSynced: in.PeersSynced}
	}
	sources := make(map[string][]mcs.Backend, len(v.exports))
	for _, e := range v.exports {
		sources[e.ID()] = v.sources(e)
	}
	w := worldOf(in)
	w.Unsupported = v.unsupported
	return mcs.Desired(w, in.decision(), in.PeersSynced, sources)
}

// Conflicts gives the conflicts of this cluster's view, by namespace/name.
func Conflicts(in Input) map[string]mcs.Condition {
	out := map[string]mcs.Condition{}
	for _, r := range in.decision().Services {
		if r.Clash.Status == "True" {
			out[r.ID()] = r.Clash
		}
	}
	return out
}

// addServiceExports reports this cluster's ServiceExports that do not count.
func (v *builder) addServiceExports() {
	for _, verdict := range v.in.decision().Verdicts {
		path := "serviceexports[" + verdict.Export.Namespace + "/" + verdict.Export.Name + "]"
		switch {
		case verdict.Offer == nil:
			v.problem(path, ExportInvalid, verdict.Valid.Message)
		case verdict.Ready.Status != "True":
			v.problem(path, ExportNotReady, verdict.Ready.Message)
		}
	}
}

// addRefused reports exports of other clusters that the topology keeps for others.
func (v *builder) addRefused() {
	for _, r := range v.in.decision().Refused {
		v.problem("serviceexports["+r.Namespace+"/"+r.Name+"]", ExportRefused, "cluster "+r.Cluster+" tells of an export that the topology lets only "+
			strings.Join(r.Clusters, ", ")+" make (spec.dynamicExports[].clusters); it does not count")
	}
}

// addTakenImports reports imports that should be ours and that somebody else writes.
func (v *builder) addTakenImports() {
	taken := map[string]bool{}
	for i := range v.in.Facts.Imports {
		if m := &v.in.Facts.Imports[i]; m.Foreign {
			taken[m.Namespace+"/"+m.Name] = true
		}
	}
	for _, e := range v.exports {
		if taken[e.ID()] && (e.ClusterPart(v.own.Name) != nil || e.Allows(v.own.Name)) {
			v.problem("serviceimports["+e.ID()+"]", ImportForeign, "somebody else than Hawser writes ServiceImport "+e.ID()+
				": end that, or delete it if nobody does any more; traffic goes on")
		}
	}
}

// sources gives where this cluster reaches each part of an export: what the name
// server says of it.
func (v *builder) sources(e *fabric.Export) []mcs.Backend {
	var out []mcs.Backend
	for _, c := range v.dnsService(e).Clusters {
		s := mcs.Backend{Cluster: c.Name, Addrs: c.IPs}
		if r := v.byName[c.Name]; r != nil {
			s.Terminating = r.terminating(e.ID())
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

// worldOf is what decides about exports. Of a cluster that was not heard since the
// agent was started, what it said before counts.
func worldOf(in Input) mcs.ClusterView {
	w := mcs.ClusterView{
		Fabric: in.Fabric, Cluster: in.Cluster, Exports: in.Facts.Exports, Imports: in.Facts.Imports,
		Namespaces: in.Facts.Namespaces, HasAPI: in.Facts.HasAPI, Offers: map[string][]mcs.NamedOffer{}, Hostnames: Hostnames(in),
	}
	for i := range in.Fabric.Clusters {
		name := in.Fabric.Clusters[i].Name
		live, heard := in.Live[name]
		if !heard {
			live = in.RestoredLive[name]
		}
		for j := range live.Exports {
			if e := &live.Exports[j]; e.Offer != nil {
				w.Offers[name] = append(w.Offers[name], mcs.NamedOffer{Namespace: e.Namespace, Name: e.Name, Offer: e.Offer})
			}
		}
	}
	return w
}

// Hostnames gives the hostnames of the endpoints of headless services, by
// namespace/name, where pods need addresses of their own to be reached: in a cluster
// with shared egress. Otherwise it gives nil.
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

// has reports whether a part of an export has one of its ports.
func has(part *fabric.ExportCluster, p fabric.Port) bool {
	return part.Ports == nil || slices.ContainsFunc(part.Ports, func(q fabric.Port) bool {
		return q.Protocol == p.Protocol && q.Port == p.Port
	})
}

// portsOf gives the ports of an export that a part has.
func portsOf(e *fabric.Export, part *fabric.ExportCluster) []fabric.Port {
	if part.Ports == nil {
		return e.Ports
	}
	return slices.DeleteFunc(slices.Clone(e.Ports), func(p fabric.Port) bool { return !has(part, p) })
}
