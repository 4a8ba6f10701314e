package access

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// clusters reports what is missing in the clusters on the path.
func (l *liveCheck) clusters() {
	var names []string
	for t := range l.allowed() {
		names = append(names, l.concerned(t)...)
	}
	names = slices.Compact(sorted(names))
	for _, name := range names {
		for i := range l.fabric.Cluster(name).Gateways {
			l.gateway(l.fabric.Cluster(name), &l.fabric.Cluster(name).Gateways[i])
		}
		for _, s := range l.byCluster[name] {
			l.agent(s)
		}
	}
	if len(l.fabrics) < 2 {
		return
	}
	var parts []string
	for _, digest := range slices.Sorted(maps.Keys(l.fabrics)) {
		parts = append(parts, digest+" in "+strings.Join(l.fabrics[digest], ", "))
	}
	l.missing("different fabrics are in force: %s", strings.Join(parts, "; "))
	for _, name := range names {
		l.doubt(name, "different fabrics are in force")
	}
}

// agent says what keeps an agent from doing what the topology says.
func (l *liveCheck) agent(s *status.Status) {
	where := s.Cluster + "/" + s.Node
	if s.Digest == "" {
		l.missing("%s has no fabric yet", where)
		l.doubt(s.Cluster, where+" has no fabric yet")
		return
	}
	if !slices.Contains(l.fabrics[s.Digest], s.Cluster) {
		l.fabrics[s.Digest] = append(l.fabrics[s.Digest], s.Cluster)
	}
	if differs := l.differs(s); len(differs) > 0 {
		l.missing("%s follows another fabric (%s) than the topology gives: %s", where, s.Digest, strings.Join(differs, ", "))
		l.doubt(s.Cluster, where+" follows another fabric than the topology gives")
	}
	switch {
	case len(s.LastPass.Failed) > 0:
		l.missing("%s: %s", where, strings.Join(s.LastPass.Failed, "; "))
		l.doubt(s.Cluster, where+" did not bring everything in force")
	case !s.Ready && len(s.LastPass.Blocked) > 0:
		l.missing("%s waits: %s", where, strings.Join(s.LastPass.Blocked, "; "))
	}
}

func (l *liveCheck) doubt(cluster, why string) { l.doubts[cluster] = append(l.doubts[cluster], why) }

// gateway reports problems with a gateway of the topology: whether its node answers,
// and whether a link to it is alive.
func (l *liveCheck) gateway(own *fabric.Cluster, g *fabric.Gateway) {
	name := own.Name + "/" + g.Name
	states := map[string]int{}
	for t := range l.allowed() {
		for _, h := range t.Live.Hops {
			for _, k := range h.Links {
				if k.From == name || k.To == name {
					states[k.State]++
				}
			}
		}
	}
	i := slices.IndexFunc(l.byCluster[own.Name], func(s *status.Status) bool { return s.Node == g.Node || g.HasNodeSelector() && s.Gateway == g.Name })
	answers := i >= 0
	switch lives := states[Alive] > 0; {
	case answers && l.byCluster[own.Name][i].Drained:
		l.missing("gateway %s is drained", name)
	case !lives && states[Down]+states[Connecting] > 0 && !answers:
		l.missing("gateway %s is down: no link to it is alive, and its agent does not answer", name)
	case !lives && states[Down]+states[Connecting] > 0:
		l.missing("gateway %s has no link that is alive", name)
	case !answers && len(l.byCluster[own.Name]) > 0:
		l.unknown("the agent of gateway %s does not answer", name)
	}
}

// differs returns the differences between an agent's fabric, as far as it is reported, and
// the topology's. It compares no public keys or digests, because they need the root key.
func (l *liveCheck) differs(s *status.Status) []string {
	var out []string
	f := l.fabric
	for i := range s.Clusters {
		have := &s.Clusters[i]
		want := f.Cluster(have.Name)
		if want == nil {
			continue // the cluster is being removed: other agents still know it
		}
		for _, g := range want.Gateways {
			if !slices.Contains(have.Gateways, g.Name) {
				out = append(out, "no gateway "+want.Name+"/"+g.Name)
			}
		}
		if !same(have.PodCIDRs, want.PodCIDRs) || !same(have.ServiceCIDRs, want.ServiceCIDRs) || !same(have.GlobalCIDRs, want.GlobalCIDRs) {
			out = append(out, "other CIDRs of "+want.Name)
		}
	}
	for i := range f.Clusters {
		if name := f.Clusters[i].Name; !slices.ContainsFunc(s.Clusters, func(c status.Cluster) bool { return c.Name == name }) {
			out = append(out, "no cluster "+name)
		}
	}
	for i := range f.Exports {
		want := &f.Exports[i]
		if want.ID() != l.export {
			continue
		}
		k := slices.IndexFunc(s.Exports, func(e status.Export) bool { return e.Namespace+"/"+e.Name == l.export })
		if k < 0 {
			out = append(out, "no export "+l.export)
			continue
		}
		have := &s.Exports[k]
		ports := make([]string, len(want.Ports))
		for i, p := range want.Ports {
			ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		}
		switch {
		case !same(have.VIPs, want.VIPs):
			out = append(out, "another address of "+l.export)
		case !slices.Equal(sorted(have.Ports), sorted(ports)):
			out = append(out, "other ports of "+l.export)
		case !slices.Equal(sorted(have.Allow), sorted(want.Allow)):
			out = append(out, "another allow list of "+l.export)
		case !slices.EqualFunc(have.Clusters, want.Clusters, func(a status.ExportCluster, b fabric.ExportCluster) bool {
			return a.Name == b.Name && same(a.IPs, b.IPs)
		}):
			out = append(out, "other exporters of "+l.export)
		}
	}
	return out
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func same[T netip.Addr | netip.Prefix](have []string, want []T) bool {
	texts := make([]string, len(want))
	for i, w := range want {
		texts[i] = fmt.Sprint(w)
	}
	return slices.Equal(sorted(have), sorted(texts))
}
