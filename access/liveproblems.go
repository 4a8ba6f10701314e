package access

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// checkClusters adds problems of the clusters on the path.
func (l *liveCheck) checkClusters() {
	var names []string
	for t := range l.allowed() {
		names = append(names, l.pathClusters(t)...)
	}
	names = slices.Compact(sorted(names))
	var agents []status.Status
	for _, name := range names {
		for i := range l.fabric.Cluster(name).Gateways {
			l.checkGateway(l.fabric.Cluster(name), &l.fabric.Cluster(name).Gateways[i])
		}
		for _, s := range l.byCluster[name] {
			l.checkFabric(s)
			agent := *s
			// The checks of the destination report problems of the export.
			agent.Problems = slices.DeleteFunc(slices.Clone(s.Problems), func(p status.Problem) bool { return strings.HasPrefix(p.Path, "exports[") })
			agents = append(agents, agent)
		}
	}
	catalog := status.NewCatalog()
	for _, p := range health.Merge(l.Problems, health.Assess(health.StatesOf(agents))) {
		if p.Cluster != "" && !slices.Contains(names, p.Cluster) || p.Export != "" && p.Export != l.export {
			continue
		}
		switch p.Code {
		case health.CodeUnreachable, health.CodeLinksDown, health.CodeDNS, status.DNSNotServing: // reported by the destinations
			continue
		case health.CodeFabricsDiffer:
			for _, name := range names {
				l.addDoubt(name, p.Text)
			}
		case status.ChangesBlocked:
		default:
			if catalog.Code(p.Code).Condition == status.ConditionReady {
				l.addDoubt(p.Cluster, health.Problem{Cluster: p.Cluster, Node: p.Node, Text: p.Text}.String())
			}
		}
		if p.Severity != health.Info {
			l.addMissing("%s", p)
		}
	}
}

// checkFabric reports an agent whose fabric differs from the topology.
func (l *liveCheck) checkFabric(s *status.Status) {
	differences := l.fabricDifferences(s)
	if s.Digest == "" || len(differences) == 0 {
		return
	}
	agent := s.Cluster + "/" + s.Node
	l.addMissing("%s uses another fabric (%s) than the topology: %s", agent, s.Digest, strings.Join(differences, ", "))
	l.addDoubt(s.Cluster, agent+" uses another fabric than the topology")
}

func (l *liveCheck) addDoubt(cluster, reason string) {
	l.doubts[cluster] = append(l.doubts[cluster], reason)
}

// checkGateway adds problems of a gateway of the topology: its node does not answer, or no link to
// it is alive.
func (l *liveCheck) checkGateway(cluster *fabric.Cluster, g *fabric.Gateway) {
	name := cluster.Name + "/" + g.Name
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
	i := slices.IndexFunc(l.byCluster[cluster.Name], func(s *status.Status) bool { return s.Node == g.Node || g.HasNodeSelector() && s.Gateway == g.Name })
	responds := i >= 0
	switch alive := states[Alive] > 0; {
	case responds && l.byCluster[cluster.Name][i].Drained:
		l.addMissing("gateway %s is drained", name)
	case !alive && states[Down]+states[Connecting] > 0 && !responds:
		l.addMissing("gateway %s is down: no link to it is alive, and its agent does not answer",
			name)
	case !alive && states[Down]+states[Connecting] > 0:
		l.addMissing("gateway %s has no link that is alive", name)
	case !responds && len(l.byCluster[cluster.Name]) > 0:
		l.addUnknown("the agent of gateway %s does not answer", name)
	}
}

// fabricDifferences returns the differences between the fabric of an agent and the fabric of the
// topology. It compares only what the agent reports. It compares no public keys or digests, because
// they need the root key.
func (l *liveCheck) fabricDifferences(s *status.Status) []string {
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
		if !sameSet(have.PodCIDRs, want.PodCIDRs) || !sameSet(have.ServiceCIDRs, want.ServiceCIDRs) || !sameSet(have.GlobalCIDRs, want.GlobalCIDRs) {
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
		case !sameSet(have.VIPs, want.VIPs):
			out = append(out, "another address of "+l.export)
		case !slices.Equal(sorted(have.Ports), sorted(ports)):
			out = append(out, "other ports of "+l.export)
		case !slices.Equal(sorted(have.Allow), sorted(want.Allow)):
			out = append(out, "another allow list of "+l.export)
		case !slices.EqualFunc(have.Clusters, want.Clusters, func(a status.ExportCluster, b fabric.ExportCluster) bool {
			return a.Name == b.Name && sameSet(a.IPs, b.IPs)
		}):
			out = append(out, "other exporters of "+l.export)
		}
	}
	return out
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func sameSet[T netip.Addr | netip.Prefix](have []string, want []T) bool {
	texts := make([]string, len(want))
	for i, w := range want {
		texts[i] = fmt.Sprint(w)
	}
	return slices.Equal(sorted(have), sorted(texts))
}
