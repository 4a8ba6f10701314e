package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

// TestActiveNodes checks the nodes of a gateway with a node selector: the possible nodes from the
// topology, and the current node from agents. It also checks the endpoint that agents report.
func TestActiveNodes(t *testing.T) {
	t.Parallel()
	f := twoClusters()
	f.Clusters[0].Gateways[0].Node, f.Clusters[0].Gateways[0].NodeSelector = "", map[string]string{"role": "edge"}
	agents := []status.Status{agentStatus("g1", "g1-a"), agentStatus("g1", "g1-w"),
		agentStatus("g2", "g2-a")}
	agents[0].Connections[0].EndpointReason = "203.0.113.9 (found: node:ExternalIP), the first of 1"
	a, err := New(f, Options{PreferredLink: preferGatewayA, Reports: &AgentReports{Agents: agents}}).Explain(
		Source{Cluster: "g1"}, Target{Export: "shop/web"})
	if err != nil {
		t.Fatal(err)
	}
	d := a.Destinations[0]
	if diff := cmp.Diff(map[string]string{"g1/a": "with role=edge"}, d.Links[0].NodeSelectors); diff != "" {
		t.Errorf("from the topology (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"g1/a": "g1-a"}, d.Live.Hops[0].Links[0].ActiveNodes); diff != "" {
		t.Errorf("from agents (-want +got)\n%s", diff)
	}
	want := map[string]string{"g2/a": "203.0.113.9 (found: node:ExternalIP), the first of 1"}
	if diff := cmp.Diff(want, d.Live.Hops[0].Links[0].EndpointResults); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
}
