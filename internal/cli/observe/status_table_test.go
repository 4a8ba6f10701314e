package observe

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
)

// TestStatusTablesFit checks that without -o wide no line of a table has more than 120 characters.
func TestStatusTablesFit(t *testing.T) {
	t.Parallel()
	const cluster, node = "frankfurt-edge", "ip-10-128-14-201.eu-central-1.compute.internal"
	exporters := make([]string, 0, 20)
	for i := range 20 {
		exporters = append(exporters, fmt.Sprintf("singapore-%02d", i))
	}
	s := health.State{Cluster: cluster, Context: "arn:aws:eks:eu-central-1:123456789012:cluster/" + cluster, Pods: 120, Running: 118,
		Clusterset: "production", Applied: "b06512f3a9c4"}
	for _, fabric := range []string{"b06512f3a9c4", "0c2d61f7e8aa", "77d04a1be923"} {
		s.Nodes = append(s.Nodes, health.Node{Name: node, Cluster: cluster, Role: "gateway", Gateway: "gateway-a",
			Version: "v0.12.0", Fabric: fabric, Ready: "False", LinksUp: 18, Links: 20, Reason: "links are down",
			Problems: []status.Problem{{Code: status.PodsOutsideCIDRs, Severity: status.Error, Text: "pods of node " + node + " are outside podCIDRs 10.128.0.0/14, so no other cluster is reached: add their prefix"}}})
	}
	s.Nodes = append(s.Nodes, health.Node{Name: node, Role: "worker", NodeNotReady: "NotReady since 2026-11-27T10:41:12Z"})
	s.Exports = []health.Export{{Namespace: "team-shop", Name: "web-frontend", Exported: true, Type: "ClusterSetIP",
		IPs: []string{"243.115.200.101", "fd00:243::c865"}, Clusters: exporters, Conditions: []health.Condition{
			{Type: "Conflict", Status: "True", Reason: "SessionAffinityConfigConflict"},
			{Type: "Ready", Status: "False", Reason: "Pending"},
			{Type: "Valid", Status: "True", Reason: "Valid"}}}}
	states := []health.State{s, {Cluster: cluster, Context: s.Context, Error: "connection refused"}}
	text := statusTables(states, false)
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if wide := statusText(states, health.Assess(states), true); !strings.Contains(wide, s.Nodes[0].FirstProblem()) || !strings.Contains(wide, exporters[19]) {
		t.Errorf("status -o wide does not have all:\n%s", wide)
	}
}
