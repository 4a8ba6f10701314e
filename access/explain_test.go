package access

import (
	"net/netip"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestDenied checks the text of each denial and the topology path that decides.
func TestDenied(t *testing.T) {
	t.Parallel()
	web := Target{Export: "shop/web"}
	for name, c := range map[string]struct {
		change func(f *fabric.Fabric)
		to     Target
		why    string
		path   string
	}{
		"no such export": {nil, Target{Export: "shop/nothing"},
			"no cluster exports shop/nothing: it is not in exports, and clusters may not export from namespace shop by themselves", "dynamicExports"},
		"another cluster's export": {nil, Target{Export: "shop/web", Cluster: "g1"}, "shop/web is not exported by g1", "exports[shop/web].clusters[g1]"},
		"no gateway": {func(f *fabric.Fabric) { f.Clusters[1].Gateways = nil }, web,
			"g1 and g2 have no path to each other", "clusters[g2].gateways"},
		"no link": {func(f *fabric.Fabric) { f.Shape = fabric.Shape{Mode: fabric.ModeExplicit} }, web,
			"g1 and g2 have no path to each other", "connectivity"},
		"not on the allow list": {func(f *fabric.Fabric) { f.Exports[0].Allow = []string{"g3"} }, web,
			"the allow list of shop/web does not have g1", "exports[shop/web].allow"},
		"no such port": {nil, Target{Export: "shop/web", Port: "81", Protocol: "tcp"}, "shop/web has no port 81: it has 80 (http)", "exports[shop/web].ports"},
		"no address": {func(f *fabric.Fabric) {
			f.Exports[0].Type, f.Exports[0].VIPs, f.Exports[0].Clusters[0].IPs = fabric.Headless, nil, nil
			f.Clusters[1].Mappings = nil
		}, web, "pods of g2 have no address that others know: set hostnames of the export", "exports[shop/web]"},
		"another family": {func(f *fabric.Fabric) {
			f.Exports[0].VIPs = []netip.Addr{netip.MustParseAddr("fd00::1")}
			f.Exports[0].Clusters[0].IPs = []netip.Addr{netip.MustParseAddr("fd00:2::9")}
		}, web, "g1 and g2 have no address family in common", "clusters[g1].podCIDRs"},
		"an unused address of the block": {nil, Target{Addr: netip.MustParseAddr("242.2.0.77"), Port: "80", Protocol: "tcp"},
			"no export has 242.2.0.77: pods behind it get answers only", "clusters[g2]"},
		"a hidden address": {nil, Target{Addr: netip.MustParseAddr("10.7.0.9"), Cluster: "g2", Port: "80", Protocol: "tcp"},
			"10.7.0.9 is hidden behind the global block of g2: ask for an export", "clusters[g2].globalnet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := twoClusters()
			if c.change != nil {
				c.change(f)
			}
			a, err := New(f, Options{}).Explain(Source{Cluster: "g1"}, c.to)
			if err != nil {
				t.Fatal(err)
			}
			if a.Allowed || a.Reached() || a.Reason != c.why || a.DecidedBy != c.path {
				t.Errorf("%v: %q by %q, want %q by %q", a.Allowed, a.Reason, a.DecidedBy, c.why, c.path)
			}
		})
	}
}

// TestExplainFails checks that a missing cluster or port is an error.
func TestExplainFails(t *testing.T) {
	t.Parallel()
	s := New(twoClusters(), Options{})
	for _, c := range []struct {
		from Source
		to   Target
		want string
	}{
		{Source{Cluster: "g9"}, Target{Export: "shop/web"}, "there is no cluster g9 in the topology"},
		{Source{Cluster: "g1"}, Target{Export: "shop/web", Port: "ftp"}, `shop/web has no port "ftp": it has 80 (http)`},
		{Source{Cluster: "g1"}, Target{Addr: netip.MustParseAddr("10.7.0.9"), Cluster: "g9", Port: "80"}, "there is no cluster g9 in the topology"},
	} {
		if _, err := s.Explain(c.from, c.to); err == nil || err.Error() != c.want {
			t.Errorf("%v to %v: %v, want %s", c.from, c.to, err, c.want)
		}
	}
}

// TestDynamic checks the destinations of a dynamic export. Without reports they are all clusters
// that may export. With reports they are the clusters that do. A report cannot allow more than the
// topology.
func TestDynamic(t *testing.T) {
	t.Parallel()
	f := twoClusters()
	f.DynamicExports = &fabric.DynamicExports{Namespaces: []string{"team-*"}}
	for i, block := range []string{"242.1.255.0/24", "242.2.255.0/24"} {
		f.Clusters[i].Dynamic = []netip.Prefix{netip.MustParsePrefix(block)}
	}
	report := func(id, namespace, name, cluster string) AgentReports {
		s := agentStatus(id, id+"-a")
		s.Exports = append(s.Exports, status.Export{Namespace: namespace, Name: name, Dynamic: true,
			Clusters: []status.ExportCluster{{Name: cluster, Ready: "yes", Backends: []string{"bot-0"}}}})
		return AgentReports{Agents: []status.Status{s}}
	}
	for name, c := range map[string]struct {
		reports *AgentReports
		from    string
		to      string
		allowed []string // clusters
	}{
		"may":                              {nil, "g1", "team-a/bot", []string{"g2"}},
		"does":                             {new(report("g2", "team-a", "bot", "g2")), "g1", "team-a/bot", []string{"g2"}},
		"its own":                          {new(report("g1", "team-a", "bot", "g1")), "g1", "team-a/bot", []string{"g1"}},
		"reported from a closed namespace": {new(report("g2", "shop", "bot", "g2")), "g1", "shop/bot", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := New(f, Options{Reports: c.reports}).Explain(Source{Cluster: c.from}, Target{Export: c.to})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range a.Destinations {
				if d.Allowed {
					got = append(got, d.Cluster)
				}
			}
			if !slices.Equal(got, c.allowed) || a.Allowed != (len(c.allowed) > 0) || a.DecidedBy != "dynamicExports" {
				t.Errorf("allowed in %v by %q, want %v: %+v", got, a.DecidedBy, c.allowed, a)
			}
			if (a.Live != nil) != (c.reports != nil && a.Allowed) {
				t.Errorf("live: %+v", a.Live)
			}
		})
	}
}

// TestDiffDecidedBy checks that Diff names the same topology path as Explain in the fabric without
// the access.
func TestDiffDecidedBy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *fabric.Fabric){
		"allow":    func(f *fabric.Fabric) { f.Exports[0].Allow = []string{"g3"} },
		"port":     func(f *fabric.Fabric) { f.Exports[0].Ports[0].Port = 81 },
		"gateways": func(f *fabric.Fabric) { f.Clusters[0].Gateways = nil },
		"links":    func(f *fabric.Fabric) { f.Shape = fabric.Shape{Mode: fabric.ModeExplicit} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := twoClusters(), twoClusters()
			change(without)
			a, err := New(without, Options{}).Explain(Source{Cluster: "g1"}, Target{Export: "shop/web", Port: "80", Protocol: "tcp"})
			if err != nil || a.Allowed {
				t.Fatalf("%+v, %v", a, err)
			}
			removed := Diff(New(with, Options{}), New(without, Options{})).Removed
			added := Diff(New(without, Options{}), New(with, Options{})).Added
			for _, list := range [][]Change{removed, added} {
				if len(list) != 1 || list[0].Path != a.DecidedBy || !slices.Equal(list[0].To[0].Ports, []string{"80/TCP"}) {
					t.Errorf("%+v, want by %s", list, a.DecidedBy)
				}
			}
		})
	}
}

// TestUnknownAddress checks that addresses outside the topology are errors, not answers.
func TestUnknownAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from Source
		to   Target
		want string
	}{
		{Source{Cluster: "g1", Addr: netip.MustParseAddr("10.99.0.1")}, Target{Export: "shop/web"},
			"10.99.0.1 is no pod of g1, whose podCIDRs are 10.7.0.0/16: correct the address or podCIDRs, or write g1/node for a node"},
		{Source{Cluster: "g1"}, Target{Addr: netip.MustParseAddr("198.51.100.1"), Port: "80", Protocol: "tcp"},
			"198.51.100.1 belongs to no cluster and no export: the clusterset IPs, global addresses, podCIDRs and serviceCIDRs are " +
				"242.0.0.0/8, 10.7.0.0/16, 10.77.0.0/16, 243.0.0.0/16 (hawser show clusters)"},
		{Source{Cluster: "g1"}, Target{Addr: netip.MustParseAddr("198.51.100.1"), Cluster: "g2", Port: "80", Protocol: "tcp"},
			"198.51.100.1 belongs to no cluster and no export: the prefixes of g2 are 10.7.0.0/16, 10.77.0.0/16, 242.2.0.0/16 (hawser show clusters)"},
		{Source{Cluster: "g1"}, Target{Addr: netip.MustParseAddr("10.7.0.9"), Port: "80", Protocol: "tcp"},
			"10.7.0.9 leads to no other cluster: it is no address of an export, of a used global block or of a flat cluster; " +
				"for an address that a cluster hides, name the cluster, as in g1/10.7.0.9"},
	} {
		if a, err := New(twoClusters(), Options{}).Explain(tt.from, tt.to); err == nil || err.Error() != tt.want {
			t.Errorf("answer %+v, error %v, want %q", a, err, tt.want)
		}
	}
}
