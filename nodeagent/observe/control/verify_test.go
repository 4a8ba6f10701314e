package control

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// TestChecksOf checks the names to verify in a cluster, and why some are skipped or not ready.
func TestChecksOf(t *testing.T) {
	t.Parallel()
	port := func(protocol string, number int) fabric.Port {
		return fabric.Port{Name: strings.ToLower(protocol), Protocol: protocol, Port: number}
	}
	both := []fabric.ExportCluster{{Name: "g1"}, {Name: "g2"}}
	in := projection.Input{Cluster: "g1", Fabric: &fabric.Fabric{Domain: "set", DNS: fabric.DNS{ClusterNames: true}, Exports: []fabric.Export{
		{Namespace: "a", Name: "web", Type: fabric.ClusterSetIP, Ports: []fabric.Port{port("TCP", 80), port("UDP", 53)}, Clusters: both},
		{Namespace: "b", Name: "dns", Type: fabric.ClusterSetIP, Ports: []fabric.Port{port("UDP", 53)}, Clusters: both[1:]},
		{Namespace: "c", Name: "pods", Type: fabric.Headless, Ports: []fabric.Port{port("TCP", 80)}, Clusters: []fabric.ExportCluster{{Name: "g3"}}},
		{Namespace: "d", Name: "theirs", Type: fabric.ClusterSetIP, Ports: []fabric.Port{port("TCP", 80)}, Allow: []string{"g2"}, Clusters: both},
		{Namespace: "e", Name: "part", Type: fabric.ClusterSetIP, Ports: []fabric.Port{port("TCP", 80), port("TCP", 81)},
			Clusters: []fabric.ExportCluster{{Name: "g2", Ports: []fabric.Port{port("TCP", 81)}}}},
	}}}
	ready := func(names ...string) (out model.ClusterState) {
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			out.Exports = append(out.Exports, model.ExportState{Namespace: namespace, Name: name, Ready: true})
		}
		return out
	}
	in.ClusterStates = map[string]model.ClusterState{"g2": ready("a/web", "d/theirs", "e/part"), "g3": {}}
	lines := func() string {
		var lines []string
		for _, c := range checksOf(in) {
			line := fmt.Sprintf("%s %s %v", c.Name, c.Export, c.Ports)
			if c.Headless {
				line += " headless"
			}
			if c.NotReady+c.Skipped != "" {
				line += ": " + c.NotReady + c.Skipped
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	}
	const want = `web.a.svc.set a/web [{tcp TCP 80} {udp UDP 53}]
g1.web.a.svc.set a/web [{tcp TCP 80} {udp UDP 53}]: no endpoint is ready in cluster g1
g2.web.a.svc.set a/web [{tcp TCP 80} {udp UDP 53}]
dns.b.svc.set b/dns [{udp UDP 53}]: no endpoint is ready in any cluster
g2.dns.b.svc.set b/dns [{udp UDP 53}]: no endpoint is ready in cluster g2
pods.c.svc.set c/pods [{tcp TCP 80}] headless: no endpoint is ready in any cluster
g3.pods.c.svc.set c/pods [{tcp TCP 80}] headless: no endpoint is ready in cluster g3
theirs.d.svc.set d/theirs [{tcp TCP 80}]: the export does not allow this cluster
g1.theirs.d.svc.set d/theirs [{tcp TCP 80}]: no endpoint is ready in cluster g1
g2.theirs.d.svc.set d/theirs [{tcp TCP 80}]: the export does not allow this cluster
part.e.svc.set e/part [{tcp TCP 80} {tcp TCP 81}]
g2.part.e.svc.set e/part [{tcp TCP 81}]`
	if have := lines(); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
	in.Fabric.DNS.ClusterNames = false
	if have := lines(); strings.Contains(have, "g2.web") || !strings.HasPrefix(have, "web.a.svc.set ") {
		t.Errorf("without names of clusters:\n%s", have)
	}
}

func TestServeVerification(t *testing.T) {
	t.Parallel()
	c := New(Config{Outcome: func() round.Outcome { return round.Outcome{} }})
	for query, want := range map[string]string{
		"":              "400 timeout: want a duration from 100ms to 30s",
		"timeout=3":     "400 timeout: want a duration from 100ms to 30s",
		"timeout=31s":   "400 timeout: want a duration from 100ms to 30s",
		"timeout=100ms": "409 no fabric yet: the exports are unknown; see hawser-agent status",
	} {
		w := httptest.NewRecorder()
		c.serveVerification(w, httptest.NewRequest(http.MethodGet, "/verify?"+query, nil))
		if have := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); have != want {
			t.Errorf("%s: %s, want %s", query, have, want)
		}
	}
}
