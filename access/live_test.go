package access

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// twoClusters returns clusters g1 and g2 with a gateway each. g2 exports shop/web.
func twoClusters() *fabric.Fabric {
	member := func(name, block string) fabric.Cluster {
		return fabric.Cluster{
			Name: name, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}, Globalnet: true,
			GlobalCIDRs: []netip.Prefix{netip.MustParsePrefix(block)}, EgressMode: fabric.EgressMapped,
			Mappings: []fabric.Mapping{{Pods: netip.MustParsePrefix("10.7.0.0/16"), Global: netip.MustParsePrefix(block)}},
			Gateways: []fabric.Gateway{{Name: "a", Node: name + "-a"}},
		}
	}
	return &fabric.Fabric{
		Name: "demo", Domain: "clusterset.local", Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard},
		GlobalPools:  []netip.Prefix{netip.MustParsePrefix("242.0.0.0/8")},
		ServicePools: []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")},
		Clusters:     []fabric.Cluster{member("g1", "242.1.0.0/16"), member("g2", "242.2.0.0/16")},
		Exports: []fabric.Export{{
			Namespace: "shop", Name: "web", Type: fabric.ClusterSetIP, VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.1")},
			Ports:    []fabric.Port{{Name: "http", Protocol: "TCP", Port: 80}},
			Clusters: []fabric.ExportCluster{{Name: "g2", IPs: []netip.Addr{netip.MustParseAddr("242.2.0.9")}}},
		}},
	}
}

// agentStatus returns the status of an agent that has applied everything of two clusters.
func agentStatus(cluster, node string) status.Status {
	other := map[string]string{"g1": "g2", "g2": "g1"}[cluster]
	s := status.Status{
		Cluster: cluster, Node: node, Digest: "0123", Ready: true,
		Paths: []status.Path{{Cluster: other, LocalGateway: "a", RemoteGateway: "a", Rank: "good"}},
		Exports: []status.Export{{Namespace: "shop", Name: "web", VIPs: []string{"243.0.0.1"}, Ports: []string{"80/TCP"},
			Clusters: []status.ExportCluster{{Name: "g2", IPs: []string{"242.2.0.9"}, Ready: "yes"}}}},
	}
	for name, block := range map[string]string{"g1": "242.1.0.0/16", "g2": "242.2.0.0/16"} {
		s.Clusters = append(s.Clusters, status.Cluster{Name: name, PodCIDRs: []string{"10.7.0.0/16"},
			ServiceCIDRs: []string{"10.77.0.0/16"}, GlobalCIDRs: []string{block}, Gateways: []string{"a"}})
	}
	if node == cluster+"-a" {
		s.Gateway = "a"
		s.Connections = []status.Connection{{Gateway: "a", RemoteCluster: other, RemoteGateway: "a",
			Driver: "wireguard (kernel)", Status: status.Connected, RTT: &status.RTT{Avg: 1200}}}
	}
	if cluster == "g2" {
		s.Exports[0].Clusters[0].Backends = []string{"web-0"}
	}
	return s
}

func preferGatewayA(string, string) (local, remote string, ok bool) { return "a", "a", true }

func TestLive(t *testing.T) {
	t.Parallel()
	const nothing, maybe = "allowed, but nothing arrives: ", "allowed; delivery unknown: "
	type agents = []status.Status
	all := func(change func(g1a, g1w, g2a *status.Status)) agents {
		list := agents{agentStatus("g1", "g1-a"), agentStatus("g1", "g1-w"),
			agentStatus("g2", "g2-a")}
		change(&list[0], &list[1], &list[2])
		return list
	}
	linkStatus := func(state string) agents {
		return all(func(g1a, g1w, g2a *status.Status) {
			g1a.Connections[0].Status, g2a.Connections[0].Status = state, state
		})
	}
	unready := all(func(g1a, g1w, g2a *status.Status) {
		for _, s := range []*status.Status{g1a, g1w, g2a} {
			s.Exports[0].Clusters[0].Ready, s.Exports[0].Clusters[0].Backends = "no", nil
		}
	})
	healthy := all(func(_, _, _ *status.Status) {})
	for name, c := range map[string]struct {
		reports AgentReports
		verdict string
		why     string
		missing string // one of them
		unknown string
	}{
		"no fault": {AgentReports{Agents: healthy}, Delivered,
			"pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", ""},
		"no link is alive": {AgentReports{Agents: linkStatus(status.Disconnected)}, NotDelivered,
			nothing + "no link between g1 and g2 is alive", "gateway g2/a has no link that is alive", ""},
		"the link is not up yet": {AgentReports{Agents: linkStatus(status.Connecting)}, NotDelivered,
			nothing + "no link between g1 and g2 is alive", "", ""},
		"one end hears nothing": {AgentReports{Agents: all(func(_, _, g2a *status.Status) {
			g2a.Connections[0].Status = status.Disconnected
		})}, NotDelivered, nothing + "no link between g1 and g2 is alive", "", ""},
		"a node has no path": {AgentReports{Agents: all(func(_, g1w, _ *status.Status) { g1w.Paths = nil })}, Unknown,
			maybe + "g1-w of g1 has no path to g2 that is alive", "", ""},
		"no node has a path": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Paths[0].Rank, g1w.Paths[0].Rank = "down", "down"
		})}, NotDelivered, nothing + "no node of g1 has a way to g2 that is alive", "", ""},
		"no backend is ready": {AgentReports{Agents: unready}, NotDelivered,
			nothing + "no backend of shop/web is ready in g2", "no backend of shop/web is ready in g2", ""},
		"backends not heard of": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Exports[0].Clusters[0].Ready, g1w.Exports[0].Clusters[0].Ready = "no", "no"
		})}, NotDelivered, nothing + "g1 has not heard of a ready backend of shop/web in g2", "", ""},
		"nothing heard": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Exports[0].Clusters[0].Ready, g1w.Exports[0].Clusters[0].Ready = status.Unknown, status.Unknown
		})}, Unknown, maybe + "not all nodes of g1 have heard from g2 which backends are ready", "", ""},
		"the target is not reached": {AgentReports{Agents: healthy[:2], Unreachable: map[string]string{"g2": "timeout"}}, Unknown,
			maybe + "no agent of g2 answered: timeout; g1 heard last that ready backends of shop/web there: yes", "",
			"no agent of g2 answered: timeout"},
		"the target is not reached, and had none": {AgentReports{Agents: unready[:2]}, NotDelivered,
			nothing + "g1 has not heard of a ready backend of shop/web in g2", "", "no agent of g2 answered"},
		"the client's cluster is not reached": {AgentReports{Agents: healthy[2:]}, Unknown, maybe + "no agent of g1 answered", "",
			"no agent of g1 answered"},
		"no agent answers": {AgentReports{}, Unknown, maybe + "no agent of g1 answered; no agent of g2 answered", "", "no agent of g2 answered"},
		"names are not answered": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.DNSUnavailable, g1w.DNSUnavailable = true, true })}, NotDelivered,
			nothing + "names of clusterset.local are not answered on g1-a, g1-w of g1", "", ""},
		"names are not answered on one": {AgentReports{Agents: all(func(_, g1w, _ *status.Status) { g1w.DNSUnavailable = true })}, Unknown,
			maybe + "names of clusterset.local are not answered on g1-w of g1", "", ""},
		"the cluster's DNS does not forward": {AgentReports{Agents: healthy, Unresolved: map[string]string{"g1": "no block"}}, Unknown,
			maybe + "pods of g1 may not resolve names of the clusterset", "g1: no block", ""},
		"another fabric": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.Digest, g1w.Digest = "4567", "4567" })}, Unknown,
			maybe + "clusters have different fabrics: 0123 in g2; 4567 in g1",
			"clusters have different fabrics: 0123 in g2; 4567 in g1; next: wait for Flux or Argo CD, or run hawser apply --repo URL", ""},
		"an older export": {AgentReports{Agents: all(func(_, _, g2a *status.Status) { g2a.Exports[0].Ports = []string{"8080/TCP"} })}, Unknown,
			maybe + "g2/g2-a uses another fabric than the topology",
			"g2/g2-a uses another fabric (0123) than the topology: other ports of shop/web", ""},
		"no such export yet": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.Exports, g1w.Exports = nil, nil })}, NotDelivered,
			nothing + "agents of g1 have no export shop/web of g2", "g1/g1-a uses another fabric (0123) than the topology: no export shop/web", ""},
		"not open yet": {AgentReports{Agents: all(func(_, _, g2a *status.Status) { g2a.Exports[0].Allow = []string{"g3"} })}, NotDelivered,
			nothing + "as agents of g2 have it, shop/web is not open to g1", "", ""},
		"a pass failed": {AgentReports{Agents: all(func(_, _, g2a *status.Status) {
			g2a.Problems = []status.Problem{{Code: status.ChangesFailed, Severity: status.Error, Text: "nft: no", Next: "hawser show all"}}
		})}, Unknown, maybe + "g2/g2-a: nft: no", "g2/g2-a: nft: no; next: hawser show all", ""},
		"the API reports a problem of a cluster on the path": {AgentReports{Agents: healthy, Problems: []health.Problem{
			{Severity: health.Error, Code: "node-not-ready", Cluster: "g2", Node: "g2-w", Text: "the node is NotReady"},
		}}, Delivered, "pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "g2/g2-w: the node is NotReady", ""},
		"no backend, and the reason": {AgentReports{Agents: func() agents {
			list := slices.Clone(unready)
			list[2].Problems = []status.Problem{
				{Path: "exports[shop/web].clusters[g2]", Code: "service-type", Text: "it is of type ExternalName"},
				{Path: "exports[shop/other].clusters[g2]", Code: "service-missing", Text: "of another export"},
				{Path: "exports[shop/web].clusters[g2]", Code: status.ExportWithoutEndpoints, Text: "the effect"},
			}
			return list
		}()}, NotDelivered, nothing + "no backend of shop/web is ready in g2: it is of type ExternalName", "", ""},
		"pods outside of podCIDRs on a node": {AgentReports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Code: status.PodsOutsideCIDRs, Text: "pods are outside"}}
		})}, Unknown, maybe + "pods of g1 on g1-w are outside of its podCIDRs, and their packets are dropped", "g1/g1-w: pods are outside", ""},
		"all pods outside of podCIDRs": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Problems = []status.Problem{{Code: status.PodsOutsideCIDRs, Text: "pods are outside"}}
			g1w.Problems = g1a.Problems
		})}, NotDelivered, nothing + "pods of g1 on g1-a, g1-w are outside of its podCIDRs, and their packets are dropped", "", ""},
		"the export's address is on a network of a node": {AgentReports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/web].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
		})}, Unknown, maybe + "shop/web of g2 has the address of a network that g1-w of g1 is connected to",
			"g1/g1-w: shop/web of g2: on a network", ""},
		"the export's address is on a network of all nodes": {AgentReports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/web].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
			g1a.Problems = g1w.Problems
		})}, NotDelivered, nothing + "shop/web of g2 has the address of a network that g1-a, g1-w of g1 is connected to", "", ""},
		"another export's address is on a network": {AgentReports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/other].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
		})}, Delivered, "pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", ""},
		"a gateway's agent is gone": {AgentReports{Agents: all(func(g1a, _, _ *status.Status) { *g1a = agentStatus("g1", "g1-x") })}, Delivered,
			"pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", "the agent of gateway g1/a does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := New(twoClusters(), Options{PreferredLink: preferGatewayA})
			from, to := Source{Cluster: "g1"}, Target{Export: "shop/web"}
			a, err := set.Explain(from, to)
			if err != nil || !a.Reached() || a.Live != nil || a.Summary() != a.Reason {
				t.Fatalf("the topology does not allow it: %+v, %v", a, err)
			}
			a, err = set.WithReports(c.reports).Explain(from, to)
			if err != nil {
				t.Fatal(err)
			}
			live := a.Live
			if live == nil || live.Verdict != c.verdict || a.Summary() != c.why || a.Reached() != (c.verdict == Delivered) || !a.Allowed {
				t.Fatalf("%v: %s\n%+v", a.Allowed, a.Summary(), live)
			}
			if c.missing != "" && !slices.Contains(live.Missing, c.missing) {
				t.Errorf("missing: %s", strings.Join(live.Missing, "\n"))
			}
			if c.unknown != "" && !slices.Contains(live.Unknown, c.unknown) {
				t.Errorf("unknown: %s", strings.Join(live.Unknown, "\n"))
			}
		})
	}
}

// TestLiveDenied checks that reports do not change an answer that the topology denies.
func TestLiveDenied(t *testing.T) {
	t.Parallel()
	set := New(twoClusters(), Options{})
	a, err := set.Explain(Source{Cluster: "g1"}, Target{Export: "shop/nothing"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.WithReports(AgentReports{}).Explain(Source{Cluster: "g1"}, Target{Export: "shop/nothing"})
	if diff := cmp.Diff(a, b, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil || b.Reached() || b.Live != nil {
		t.Errorf("%+v, %v\n%s", b, err, diff)
	}
}
