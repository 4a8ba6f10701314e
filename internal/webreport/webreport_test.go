package webreport

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/matrix"
)

var update = flag.Bool("update", false, "write the goldens")

// made is a report in which each text that comes from others is name.
func made(t *testing.T, name string) *Report {
	t.Helper()
	address := netip.MustParseAddr("243.0.0.1")
	destination := access.Destination{Cluster: "g2", Allowed: true, Requested: []netip.Addr{address}, Sources: []string{"242.1.0.0/24"}}
	r := &Report{
		Clusterset: name, Made: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), Version: "v1", Topology: "clusterset.yaml",
		Map: &clustermap.Map{Clusterset: name, Clusters: []clustermap.Cluster{{Name: name, PodCIDRs: []string{"10.7.0.0/16"}, State: clustermap.Up},
			{Name: "g2", PodCIDRs: []string{"10.7.0.0/16"}, Gateways: []clustermap.Gateway{{Name: name, Node: name, Endpoints: []string{name}}}}},
			Links: []clustermap.Link{{Between: [2]string{name, "g2"}, Driver: "wireguard", State: clustermap.Down}}},
		Matrix: &matrix.Matrix{Clusters: []string{name, "g2"}, Exports: []matrix.Export{{
			ID: name, Name: name, Type: "ClusterSetIP", Ports: []string{"80"}, Policy: "spread", IPs: []netip.Addr{address}, Source: "clusterset.yaml:9",
			Parts: []matrix.Part{{Cluster: "g2", Ready: "yes", Endpoints: []string{name}}, {Cluster: "g3", Ready: "no"}},
			Cells: []matrix.Cell{
				{Cluster: name, Allowed: true, Why: name, Source: "clusterset.yaml:12", Destinations: []access.Destination{destination}, LiveVerdict: "no", LiveWhy: []string{name}},
				{Cluster: "g2", Why: name, Source: "clusterset.yaml:10"}},
		}}},
		Findings: []Finding{{By: "validate", Severity: Warning, Place: "clusterset.yaml:3:4", Text: name, Hint: name}},
	}
	r.Hear([]status.Status{{Cluster: "g2", Node: name, Gateway: name, Version: name, Digest: name, Problems: []status.Problem{{Text: name}},
		LastPass: status.Pass{Failed: []string{name}, Blocked: []string{name}}, Inputs: []status.InputState{{Name: name, Error: name}},
		Connections: []status.Connection{{Gateway: name, RemoteCluster: name, RemoteGateway: name, Status: status.Disconnected, Why: name}}}})
	c, err := Certify(r.Made, r.Made.Add(time.Second), []status.Verification{{Cluster: "g2", Node: name, Results: []status.Verified{
		{Export: name, Name: name, Reached: []string{"243.0.0.1:80"}, Micros: 1500}, {Export: name, Name: name, Error: name}, {Export: name, Name: name, Skipped: name}}}},
		[]string{name})
	if err != nil {
		t.Fatal(err)
	}
	r.Prove(c)
	return r
}

// TestGolden: the page is as it was looked at.
func TestGolden(t *testing.T) {
	t.Parallel()
	got := made(t, "shop").HTML()
	file := filepath.Join("testdata", "report.html")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, text := range []string{"clusterset.yaml:12", "allowed, nothing arrives", "seen as 242.1.0.0/24", "asks 243.0.0.1", "1 of 2 names answered", "g2 (1 ready), g3 (none ready)"} {
		if !strings.Contains(got, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// TestHostileReport: whatever clusters, exports, nodes and agents are called and say, it is
// text in the page.
func TestHostileReport(t *testing.T) {
	t.Parallel()
	const evil = "</td><script>alert(1)</script><img src=//x onerror=alert(1)>\" onmouseover=\"x\x1b[31m\u202e"
	page := made(t, evil).HTML()
	for _, never := range []string{"<script", "<img", "\x1b", "\u202e", `" onmouseover="`} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 20 {
		t.Errorf("only %d of the texts are there", n)
	}
}

// TestTrouble: an error among the findings is trouble, a warning is none.
func TestTrouble(t *testing.T) {
	t.Parallel()
	if r := (&Report{Findings: []Finding{{Severity: Warning}}}); r.Trouble() {
		t.Error("a warning is trouble")
	}
	if !made(t, "shop").Trouble() {
		t.Error("a failed pass is no trouble")
	}
}
