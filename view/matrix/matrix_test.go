package matrix

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

var update = flag.Bool("update", false, "write the goldens")

// world has g1 and g2 with the same prefixes, and far, which has no gateway. g2 exports web
// to g1 alone, g1 and g2 db to all, and g2 a headless one whose pods have no address.
func world() *fabric.Fabric {
	f := &fabric.Fabric{Name: "demo", Domain: "clusterset.local", Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard},
		ServicePools:   []netip.Prefix{netip.MustParsePrefix("243.0.0.0/16")},
		DynamicExports: &fabric.DynamicExports{Namespaces: []string{"team-*"}}}
	for i, name := range []string{"far", "g1", "g2"} {
		block := netip.MustParsePrefix(fmt.Sprintf("242.%d.0.0/24", i))
		c := fabric.Cluster{
			Name: name, Globalnet: true, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}, GlobalCIDRs: []netip.Prefix{block},
			EgressMode: fabric.EgressShared, EgressIPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("242.%d.0.1", i))},
			Dynamic: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("242.%d.0.128/25", i))},
		}
		if name != "far" {
			c.Gateways = []fabric.Gateway{{Name: "a", Node: name + "-gw"}}
		}
		f.Clusters = append(f.Clusters, c)
	}
	part := func(name string, last int) fabric.ExportCluster {
		block := map[string]int{"g1": 1, "g2": 2}[name]
		return fabric.ExportCluster{Name: name, IPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("242.%d.0.%d", block, last))}}
	}
	tcp := []fabric.Port{{Protocol: "TCP", Port: 80}}
	f.Exports = []fabric.Export{
		{Namespace: "shop", Name: "db", Type: fabric.ClusterSetIP, VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.1")},
			Ports: []fabric.Port{{Protocol: "UDP", Port: 53}}, Balance: fabric.Balance{Policy: fabric.Spread},
			Clusters: []fabric.ExportCluster{part("g1", 20), part("g2", 20)}},
		{Namespace: "shop", Name: "mail", Type: fabric.Headless, Ports: tcp, Clusters: []fabric.ExportCluster{{Name: "g2"}}},
		{Namespace: "shop", Name: "web", Type: fabric.ClusterSetIP, VIPs: []netip.Addr{netip.MustParseAddr("243.0.0.2")}, Ports: tcp,
			Allow: []string{"g1"}, Balance: fabric.Balance{Policy: fabric.LocalFirst}, Clusters: []fabric.ExportCluster{part("g2", 21)}},
	}
	return f
}

func position(path string) string { return "clusterset.yaml of " + path }

// liveReports returns reports of the agents of g1 and g2: the link is alive, g2 has one backend of web
// and none of db, and g1 made an export of its own.
func liveReports() *access.AgentReports {
	exports := func(of ...status.Export) []status.Export {
		return append(of, status.Export{Namespace: "team-a", Name: "bot", Type: fabric.ClusterSetIP, Ports: []string{"80/TCP"}, Dynamic: true,
			Clusters: []status.ExportCluster{{Name: "g1", Ready: "yes"}}})
	}
	path := func(to string) []status.Path {
		return []status.Path{{Cluster: to, LocalGateway: "a", RemoteGateway: "a", Rank: "good"}}
	}
	link := func(to string) []status.Connection {
		return []status.Connection{{Gateway: "a", RemoteCluster: to, RemoteGateway: "a", Status: status.Connected}}
	}
	web := status.Export{Namespace: "shop", Name: "web", VIPs: []string{"243.0.0.2"}, Ports: []string{"80/TCP"}, Allow: []string{"g1"},
		Clusters: []status.ExportCluster{{Name: "g2", IPs: []string{"242.2.0.21"}, Ready: "yes"}}}
	db := status.Export{Namespace: "shop", Name: "db", VIPs: []string{"243.0.0.1"}, Ports: []string{"53/UDP"},
		Clusters: []status.ExportCluster{{Name: "g1", Ready: "no"}, {Name: "g2", Ready: "no"}}}
	modified := web
	modified.Clusters = []status.ExportCluster{{Name: "g2", IPs: []string{"242.2.0.21"}, Ready: "yes", Backends: []string{"shop/web-0"}}}
	var known []status.Cluster
	for _, c := range world().Clusters {
		k := status.Cluster{Name: c.Name, PodCIDRs: []string{"10.7.0.0/16"}, ServiceCIDRs: []string{"10.77.0.0/16"},
			GlobalCIDRs: []string{c.GlobalCIDRs[0].String()}}
		for _, g := range c.Gateways {
			k.Gateways = append(k.Gateways, g.Name)
		}
		known = append(known, k)
	}
	return &access.AgentReports{Agents: []status.Status{
		{Cluster: "g1", Node: "g1-gw", Gateway: "a", Digest: "d", Ready: true, Paths: path("g2"), Connections: link("g2"), Exports: exports(web, db), Clusters: known},
		{Cluster: "g2", Node: "g2-gw", Gateway: "a", Digest: "d", Ready: true, Paths: path("g1"), Connections: link("g1"), Exports: exports(modified, db), Clusters: known},
	}}
}

func cell(t *testing.T, m *Matrix, export, from string) *Cell {
	t.Helper()
	for i := range m.Exports {
		for j := range m.Exports[i].Cells {
			if c := &m.Exports[i].Cells[j]; m.Exports[i].ID == export && c.Cluster == from {
				return c
			}
		}
	}
	t.Fatalf("no cell of %s from %s", export, from)
	return nil
}

// TestCells: who reaches what, and which line says so.
func TestCells(t *testing.T) {
	t.Parallel()
	m, err := New(world(), Input{Position: position})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		export, from         string
		allowed, sameCluster bool
		path                 string
	}{
		{"shop/db", "g1", true, true, "exports[shop/db].clusters[g1]"},
		{"shop/db", "g2", true, true, "exports[shop/db].clusters[g2]"},
		{"shop/db", "far", false, false, "clusters[far].gateways"},
		{"shop/web", "g1", true, false, "exports[shop/web].allow.clusters[g1]"},
		{"shop/web", "g2", true, true, "exports[shop/web].clusters[g2]"},
		{"shop/web", "far", false, false, "clusters[far].gateways"},
		{"shop/mail", "g1", false, false, "exports[shop/mail]"},
	} {
		c := cell(t, m, want.export, want.from)
		if c.Allowed != want.allowed || c.SameCluster != want.sameCluster || c.Path != want.path || c.Source != position(want.path) {
			t.Errorf("%s from %s: allowed %v, same cluster %v, %s; want %v, %v, %s", want.export, want.from, c.Allowed, c.SameCluster, c.Source, want.allowed, want.sameCluster, want.path)
		}
	}
	c := cell(t, m, "shop/web", "g1")
	if got := fmt.Sprint(c.ServiceAddrs(), c.ClientAddrs()); got != "[243.0.0.2] [242.1.0.1]" {
		t.Errorf("g1 asks for and is seen as %s", got)
	}
	if c := cell(t, m, "shop/web", "g2"); c.ClientAddrs() != nil {
		t.Errorf("within a cluster the client is seen as %v", c.ClientAddrs())
	}
}

// TestNotAllowed: an allow list decides by its own line.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	f := world()
	f.Clusters[0].Gateways = []fabric.Gateway{{Name: "a", Node: "far-gw"}}
	m, err := New(f, Input{Position: position})
	if err != nil {
		t.Fatal(err)
	}
	c := cell(t, m, "shop/web", "far")
	if c.Allowed || c.Path != "exports[shop/web].allow" || c.Reason != "the allow list of shop/web does not have far" {
		t.Errorf("far: %+v", c)
	}
}

// TestAgentReports: what agents report of backends and ways is in the matrix, and their own exports.
func TestAgentReports(t *testing.T) {
	t.Parallel()
	m, err := New(world(), Input{Position: position, Reports: liveReports()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "matrix.json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, c := range []struct{ export, from, now string }{
		{"shop/web", "g1", access.Delivered},
		{"shop/db", "g1", access.NotDelivered},
		{"shop/web", "far", ""},
		{"team-a/bot", "g2", access.Delivered},
	} {
		if got := cell(t, m, c.export, c.from).LiveVerdict; got != c.now {
			t.Errorf("%s from %s now: %q, want %q (%v)", c.export, c.from, got, c.now, cell(t, m, c.export, c.from).LiveReasons)
		}
	}
	if c := cell(t, m, "team-a/bot", "g2"); !c.Allowed || len(c.Destinations) != 1 || c.Destinations[0].Cluster != "g1" {
		t.Errorf("a dynamic export from g2: %+v", c)
	}
	if c := cell(t, m, "team-a/bot", "g1"); !c.Allowed || !c.SameCluster {
		t.Errorf("a dynamic export from its own cluster: %+v", c)
	}
}

// TestBounds: the matrix of a large clusterset is bounded, and counts the omitted rows and columns.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := world()
	for i := range 100 {
		c := f.Clusters[1]
		c.Name = fmt.Sprintf("n%03d", i)
		f.Clusters = append(f.Clusters, c)
	}
	m, err := New(f, Input{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Clusters) != MaxClusters || m.MoreClusters != 103-MaxClusters || len(m.Exports[0].Cells) != MaxClusters {
		t.Errorf("%d clusters, %d more", len(m.Clusters), m.MoreClusters)
	}
	m, err = New(f, Input{Clusters: []string{"n050"}, Exports: []string{"shop/web"}})
	if err != nil || len(m.Exports) != 1 || len(m.Exports[0].Cells) != 1 || m.MoreExports != 2 {
		t.Errorf("%+v: %v", m, err)
	}
}

// TestUnknownSelection checks that unknown clusters and exports are errors.
func TestUnknownSelection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   Input
		want string
	}{
		{Input{Clusters: []string{"nowhere"}}, "there is no cluster nowhere in the topology"},
		{Input{Exports: []string{"shop/none"}}, "there is no export shop/none in the topology"},
	} {
		if _, err := New(world(), c.in); err == nil || err.Error() != c.want {
			t.Errorf("%v: want %s", err, c.want)
		}
	}
}

// BenchmarkNew is a matrix of the largest size, with reports from each cluster.
func BenchmarkNew(b *testing.B) {
	f := world()
	for i := range MaxClusters - 3 {
		c := f.Clusters[1]
		c.Name = fmt.Sprintf("n%03d", i)
		f.Clusters = append(f.Clusters, c)
	}
	for i := range 200 {
		e := f.Exports[i%2]
		e.Name = fmt.Sprintf("e%03d", i)
		f.Exports = append(f.Exports, e)
	}
	for name, in := range map[string]Input{"topology": {Position: position}, "live": {Position: position, Reports: liveReports()}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := New(f, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestUnresolved: a cell says that the name is not resolved in a cluster, and why.
func TestUnresolved(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(r *access.AgentReports, g1 *status.Status)
		want   string
	}{
		{"the agents know the export", func(*access.AgentReports, *status.Status) {}, ""},
		{"no agent was asked in the cluster", func(r *access.AgentReports, _ *status.Status) { r.Agents = r.Agents[:0] }, ""},
		{"an agent without a fabric yet", func(_ *access.AgentReports, g1 *status.Status) { g1.Digest, g1.Exports = "", nil }, ""},
		{"the agents do not know the export", func(_ *access.AgentReports, g1 *status.Status) { g1.Exports = nil }, "no agent of g1 knows this export"},
		{"the agents answer no names", func(_ *access.AgentReports, g1 *status.Status) { g1.DNSUnavailable = true }, "no agent of g1 answers names of clusterset.local"},
		{"the DNS of the cluster does not ask", func(r *access.AgentReports, _ *status.Status) { r.Unresolved = map[string]string{"g1": "no block"} }, "no block"},
	} {
		r := liveReports()
		for i := range r.Agents {
			if s := &r.Agents[i]; s.Cluster == "g1" {
				s.Digest = "0123"
				tt.change(r, s)
				break
			}
		}
		m, err := New(world(), Input{Reports: r, Clusters: []string{"g1", "far"}, Exports: []string{"shop/web"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Exports[0].Cells[0].DNSProblem; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if got := m.Exports[0].Cells[1].DNSProblem; got != "" {
			t.Errorf("%s: a cluster that is not allowed: %q", tt.name, got)
		}
	}
}
