package arrival

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/explain"
)

// two are clusters g1 and g2 with a gateway each; g2 exports shop/web.
func two() *fabric.Fabric {
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
		Name: "demo", Domain: "clusterset.local", Tunnel: fabric.Tunnel{Driver: fabric.DriverWireguard},
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

// agent is one of a cluster that has all of two in force.
func agent(cluster, node string) status.Status {
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

func TestLook(t *testing.T) {
	t.Parallel()
	const nothing, maybe = "allowed, but nothing arrives: ", "allowed; not known to arrive: "
	type agents = []status.Status
	all := func(change func(g1a, g1w, g2a *status.Status)) agents {
		list := agents{agent("g1", "g1-a"), agent("g1", "g1-w"), agent("g2", "g2-a")}
		change(&list[0], &list[1], &list[2])
		return list
	}
	break2 := func(state string) agents {
		return all(func(g1a, g1w, g2a *status.Status) {
			g1a.Connections[0].Status, g2a.Connections[0].Status = state, state
		})
	}
	unready := all(func(g1a, g1w, g2a *status.Status) {
		for _, s := range []*status.Status{g1a, g1w, g2a} {
			s.Exports[0].Clusters[0].Ready, s.Exports[0].Clusters[0].Backends = "no", nil
		}
	})
	fine := all(func(_, _, _ *status.Status) {})
	for name, c := range map[string]struct {
		reports Reports
		verdict string
		why     string
		missing string // one of them
		unknown string
	}{
		"all is well": {Reports{Agents: fine}, Arrives,
			"pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", ""},
		"no link is alive": {Reports{Agents: break2(status.Disconnected)}, Fails,
			nothing + "no link between g1 and g2 is alive", "gateway g2/a has no link that is alive", ""},
		"the link is not up yet": {Reports{Agents: break2(status.Connecting)}, Fails,
			nothing + "no link between g1 and g2 is alive", "", ""},
		"one end hears nothing": {Reports{Agents: all(func(_, _, g2a *status.Status) {
			g2a.Connections[0].Status = status.Disconnected
		})}, Fails, nothing + "no link between g1 and g2 is alive", "", ""},
		"a node has no way": {Reports{Agents: all(func(_, g1w, _ *status.Status) { g1w.Paths = nil })}, Unknown,
			maybe + "g1-w of g1 has no path to g2 that is alive", "", ""},
		"no node has a way": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Paths[0].Rank, g1w.Paths[0].Rank = "down", "down"
		})}, Fails, nothing + "no node of g1 has a way to g2 that is alive", "", ""},
		"no backend is ready": {Reports{Agents: unready}, Fails,
			nothing + "no backend of shop/web is ready in g2", "no backend of shop/web is ready in g2", ""},
		"backends not heard of": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Exports[0].Clusters[0].Ready, g1w.Exports[0].Clusters[0].Ready = "no", "no"
		})}, Fails, nothing + "g1 has not heard of a ready backend of shop/web in g2", "", ""},
		"nothing heard": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Exports[0].Clusters[0].Ready, g1w.Exports[0].Clusters[0].Ready = status.Unknown, status.Unknown
		})}, Unknown, maybe + "not all nodes of g1 have heard from g2 which backends are ready", "", ""},
		"the target is not reached": {Reports{Agents: fine[:2], Silent: map[string]string{"g2": "timeout"}}, Unknown,
			maybe + "no agent of g2 answered: timeout; g1 heard last that ready backends of shop/web there: yes", "",
			"no agent of g2 answered: timeout"},
		"the target is not reached, and had none": {Reports{Agents: unready[:2]}, Fails,
			nothing + "g1 has not heard of a ready backend of shop/web in g2", "", "no agent of g2 answered"},
		"the client's cluster is not reached": {Reports{Agents: fine[2:]}, Unknown, maybe + "no agent of g1 answered", "",
			"no agent of g1 answered"},
		"nobody is": {Reports{}, Unknown, maybe + "no agent of g1 answered; no agent of g2 answered", "", "no agent of g2 answered"},
		"names are not answered": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.Mute, g1w.Mute = true, true })}, Fails,
			nothing + "names of clusterset.local are not answered on g1-a, g1-w of g1", "", ""},
		"names are not answered on one": {Reports{Agents: all(func(_, g1w, _ *status.Status) { g1w.Mute = true })}, Unknown,
			maybe + "names of clusterset.local are not answered on g1-w of g1", "", ""},
		"the cluster's DNS does not ask": {Reports{Agents: fine, Unresolved: map[string]string{"g1": "no block"}}, Unknown,
			maybe + "pods of g1 may not resolve names of the clusterset", "g1: no block", ""},
		"another fabric": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.Digest, g1w.Digest = "4567", "4567" })}, Unknown,
			maybe + "different fabrics are in force", "different fabrics are in force: 0123 in g2; 4567 in g1", ""},
		"an older export": {Reports{Agents: all(func(_, _, g2a *status.Status) { g2a.Exports[0].Ports = []string{"8080/TCP"} })}, Unknown,
			maybe + "g2/g2-a follows another fabric than the topology gives",
			"g2/g2-a follows another fabric (0123) than the topology gives: other ports of shop/web", ""},
		"no such export yet": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) { g1a.Exports, g1w.Exports = nil, nil })}, Fails,
			nothing + "agents of g1 know no shop/web of g2", "g1/g1-a follows another fabric (0123) than the topology gives: no export shop/web", ""},
		"not open yet": {Reports{Agents: all(func(_, _, g2a *status.Status) { g2a.Exports[0].Allow = []string{"g3"} })}, Fails,
			nothing + "as agents of g2 have it, shop/web is not open to g1", "", ""},
		"a pass failed": {Reports{Agents: all(func(_, _, g2a *status.Status) { g2a.LastPass.Failed = []string{"nft: no"} })}, Unknown,
			maybe + "g2/g2-a did not bring everything in force", "g2/g2-a: nft: no", ""},
		"no backend, and the reason": {Reports{Agents: func() agents {
			list := slices.Clone(unready)
			list[2].Problems = []status.Problem{
				{Path: "exports[shop/web].clusters[g2]", Code: "service-type", Text: "it is of type ExternalName"},
				{Path: "exports[shop/other].clusters[g2]", Code: "service-missing", Text: "of another export"},
			}
			return list
		}()}, Fails, nothing + "no backend of shop/web is ready in g2: it is of type ExternalName", "", ""},
		"pods outside of podCIDRs on a node": {Reports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Code: status.PodsOutside, Text: "pods are outside"}}
		})}, Unknown, maybe + "pods of g1 on g1-w are outside of its podCIDRs, and their packets are dropped", "g1/g1-w: pods are outside", ""},
		"all pods outside of podCIDRs": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1a.Problems = []status.Problem{{Code: status.PodsOutside, Text: "pods are outside"}}
			g1w.Problems = g1a.Problems
		})}, Fails, nothing + "pods of g1 on g1-a, g1-w are outside of its podCIDRs, and their packets are dropped", "", ""},
		"the export's address is on a network of a node": {Reports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/web].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
		})}, Unknown, maybe + "shop/web of g2 has the address of a network that g1-w of g1 is connected to",
			"g1/g1-w: shop/web of g2: on a network", ""},
		"the export's address is on a network of all nodes": {Reports{Agents: all(func(g1a, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/web].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
			g1a.Problems = g1w.Problems
		})}, Fails, nothing + "shop/web of g2 has the address of a network that g1-a, g1-w of g1 is connected to", "", ""},
		"another export's address is on a network": {Reports{Agents: all(func(_, g1w, _ *status.Status) {
			g1w.Problems = []status.Problem{{Path: "exports[shop/other].clusters[g2]", Code: status.ConnectedExport, Text: "on a network"}}
		})}, Arrives, "pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", ""},
		"a gateway's agent is gone": {Reports{Agents: all(func(g1a, _, _ *status.Status) { *g1a = agent("g1", "g1-x") })}, Arrives,
			"pods of g1: shop/web:80 is reached now in g2 over g1/a - g2/a", "", "the agent of gateway g1/a does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := explain.New(two(), func(string, string) (string, string, bool) { return "a", "a", true })
			a, err := set.Ask(explain.From{Cluster: "g1"}, explain.To{Export: "shop/web"})
			if err != nil || !a.Yes {
				t.Fatalf("the topology does not allow it: %+v, %v", a, err)
			}
			seen := Look(two(), a, c.reports)
			if seen == nil || seen.Verdict != c.verdict || a.Why != c.why || a.Yes != (c.verdict == Arrives) {
				t.Fatalf("%v: %s\n%+v", a.Yes, a.Why, seen)
			}
			if c.missing != "" && !slices.Contains(seen.Missing, c.missing) {
				t.Errorf("missing: %s", strings.Join(seen.Missing, "\n"))
			}
			if c.unknown != "" && !slices.Contains(seen.Unknown, c.unknown) {
				t.Errorf("unknown: %s", strings.Join(seen.Unknown, "\n"))
			}
		})
	}
}

// TestLookOfNo leaves an answer alone that is no already.
func TestLookOfNo(t *testing.T) {
	t.Parallel()
	set := explain.New(two(), func(string, string) (string, string, bool) { return "", "", false })
	a, err := set.Ask(explain.From{Cluster: "g1"}, explain.To{Export: "shop/nothing"})
	if err != nil {
		t.Fatal(err)
	}
	why := a.Why
	if seen := Look(two(), a, Reports{}); seen != nil || a.Why != why || a.Yes {
		t.Errorf("%+v", a)
	}
}
