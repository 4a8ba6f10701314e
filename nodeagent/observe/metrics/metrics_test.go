package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/metricdoc"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/status"
)

// everyMetric returns the metrics of an agent after one event of each kind.
func everyMetric() *Metrics {
	m := New("g1", "n1")
	m.ObserveReport(converge.Report{
		At: time.Unix(1700000000, 0), Took: time.Millisecond, Changed: []converge.Change{{Kind: "route", Op: diff.Create}},
		Drift: map[string]int{"route": 1}, Objects: map[string]int{"route": 2},
	})
	m.Query(dns.Query{Transport: "udp", Type: "A", Rcode: "NOERROR"})
	m.Replaced("hw-wg1")
	m.Moved(status.Move{Cluster: "g2", Kind: "dead"})
	m.Refused("g2")
	m.RegisterState(func() Snapshot {
		return Snapshot{Gateways: 2, Reachable: []string{"g2", "g3", "g4"}, Status: status.Status{
			Gateway: "a", Version: "v1", Digest: "abc", Clusterset: "demo", Ready: true,
			Inputs: []status.InputState{
				{Name: "fabric", OK: true, From: "file"}, {Name: "keys", From: "last good copy", Refused: "older"},
				{Name: feedInput + "g2/a", OK: true}, {Name: feedInput + "g2/b"},
				{Name: "metrics on 203.0.113.1:8474", Error: "address already in use"}, {Name: "metrics on 127.0.0.1:4806", OK: true},
			},
			Problems: []status.Problem{{Code: status.ImportConflict, Severity: status.Warning}, {Code: status.ImportConflict, Severity: status.Warning}},
			Dropped:  []status.Dropped{{Reason: "unknown_source", Packets: 7}}, Conntrack: &status.Conntrack{Entries: 5, Limit: 9},
			Paths: []status.Path{{Cluster: "g2", Rank: "good"}, {Cluster: "g3", Rank: "down"}},
			Connections: []status.Connection{
				{Gateway: "a", RemoteCluster: "g2", RemoteGateway: "a", Status: status.Connected, Rank: "good", RTT: &status.RTT{Avg: 1500}},
				{Gateway: "a", RemoteCluster: "g3", RemoteGateway: "a", Status: status.Disconnected, Rank: "down"},
			},
		}}
	})
	return m
}

// TestMetricsDocument checks that docs/metrics.md lists exactly the metrics that agents expose.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	want, err := metricdoc.Read("../../../docs/metrics.md", "Agents")
	if err != nil {
		t.Fatal(err)
	}
	have, err := metricdoc.Exposed(everyMetric().registry, "cluster", "node")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("(-document +agent)\n%s", d)
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// TestMetricsOfTheState checks the metrics of inputs, paths, feeds and links.
func TestMetricsOfTheState(t *testing.T) {
	t.Parallel()
	text := scrape(t, everyMetric())
	const of = `cluster="g1",`
	for _, want := range []string{
		`hawser_agent_info{` + of + `gateway="a",node="n1",version="v1"} 1`,
		`hawser_fabric_info{` + of + `clusterset="demo",digest="abc",node="n1"} 1`,
		`hawser_ready{` + of + `node="n1"} 1`,
		`hawser_gateways{` + of + `node="n1"} 2`,
		`hawser_problems{` + of + `code="import-conflict",node="n1",severity="warning"} 2`,
		`hawser_input_ok{` + of + `input="fabric",node="n1"} 1`,
		`hawser_input_ok{` + of + `input="keys",node="n1"} 0`,
		`hawser_input_ok{` + of + `input="metrics",node="n1"} 0`,
		`hawser_dropped_packets_total{` + of + `node="n1",reason="unknown_source"} 7`,
		`hawser_conntrack_entries{` + of + `node="n1"} 5`,
		`hawser_conntrack_limit{` + of + `node="n1"} 9`,
		`hawser_path_up{` + of + `node="n1",remote_cluster="g2"} 1`,
		`hawser_path_up{` + of + `node="n1",remote_cluster="g3"} 0`,
		`hawser_path_up{` + of + `node="n1",remote_cluster="g4"} 0`,
		`hawser_feed_connected{` + of + `node="n1",remote_cluster="g2",remote_gateway="a"} 1`,
		`hawser_feed_connected{` + of + `node="n1",remote_cluster="g2",remote_gateway="b"} 0`,
		`hawser_link_up{` + of + `gateway="a",node="n1",remote_cluster="g2",remote_gateway="a"} 1`,
		`hawser_link_up{` + of + `gateway="a",node="n1",remote_cluster="g3",remote_gateway="a"} 0`,
		`hawser_link_rtt_seconds{` + of + `gateway="a",node="n1",remote_cluster="g2",remote_gateway="a"} 0.0015`,
		`hawser_last_pass_timestamp_seconds{` + of + `node="n1"} 1.7e+09`,
		`hawser_drift_total{` + of + `kind="route",node="n1"} 1`,
		`hawser_moves_total{cause="dead",` + of + `node="n1",remote_cluster="g2"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestMetricsOfNothing checks the metrics of an agent without any input.
func TestMetricsOfNothing(t *testing.T) {
	t.Parallel()
	m := New("g1", "n1")
	m.RegisterState(func() Snapshot { return Snapshot{} })
	text := scrape(t, m)
	for _, gone := range []string{"hawser_fabric_info", "hawser_gateways", "hawser_link_up"} {
		if strings.Contains(text, gone+"{") {
			t.Errorf("%s of nothing:\n%s", gone, text)
		}
	}
	for _, want := range []string{`hawser_ready{cluster="g1",node="n1"} 0`, `hawser_signers_pinned{cluster="g1",node="n1"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s in\n%s", want, text)
		}
	}
}

// TestCountersStart checks that event counters exist before the first event, so that increase()
// counts that event.
func TestCountersStart(t *testing.T) {
	t.Parallel()
	m := New("g1", "n1")
	m.InitKinds([]string{"route", "nft element"})
	m.Tunnel("hw-wg1")
	const of = `cluster="g1",`
	started := []string{
		`hawser_drift_total{` + of + `kind="nft element",node="n1"} 0`, `hawser_drift_total{` + of + `kind="route",node="n1"} 0`,
		`hawser_changes_total{` + of + `kind="route",node="n1",op="-"} 0`, `hawser_changes_total{` + of + `kind="route",node="n1",op="±"} 0`,
		`hawser_passes_total{` + of + `node="n1",result="failed"} 0`, `hawser_passes_total{` + of + `node="n1",result="blocked"} 0`,
		`hawser_tunnel_replaced_total{` + of + `link="hw-wg1",node="n1"} 0`,
		`hawser_dns_queries_total{` + of + `node="n1",rcode="SERVFAIL",transport="udp",type="A"} 0`,
	}
	text := scrape(t, m)
	for _, want := range started {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
	m.ObserveReport(converge.Report{Drift: map[string]int{"route": 2}, Changed: []converge.Change{{Kind: "route", Op: diff.Delete}}, Failed: []converge.Problem{{}}})
	m.Replaced("hw-wg1")
	m.Query(dns.Query{Transport: "udp", Type: "A", Rcode: "SERVFAIL"})
	text = scrape(t, m)
	for i, n := range []string{"0", "2", "1", "0", "1", "0", "1", "1"} {
		want := strings.TrimSuffix(started[i], "0") + n
		if !strings.Contains(text, want+"\n") {
			t.Errorf("after an event: missing %s", want)
		}
	}
}

// TestMetricsLint runs promtool on a scrape.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	if out := metricdoc.Promtool(t, "", scrape(t, everyMetric()), "check", "metrics"); strings.Contains(out, "hawser_") {
		t.Error(out)
	}
}
