package arrival

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric/explain"
)

// TestHeld: of a gateway whose node labels pick, files say which nodes may be it, and agents
// which one is, and where the other end is reached.
func TestHeld(t *testing.T) {
	t.Parallel()
	f := two()
	f.Clusters[0].Gateways[0].Node, f.Clusters[0].Gateways[0].NodeSelector = "", map[string]string{"role": "edge"}
	given, err := explain.New(f, func(string, string) (string, string, bool) { return "a", "a", true }).Ask(
		explain.From{Cluster: "g1"}, explain.To{Export: "shop/web"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"g1/a": "with role=edge"}, given.Trips[0].Links[0].Picked); diff != "" {
		t.Errorf("from files (-want +got)\n%s", diff)
	}
	agents := []status.Status{agent("g1", "g1-a"), agent("g1", "g1-w"), agent("g2", "g2-a")}
	agents[0].Connections[0].EndpointWhy = "203.0.113.9 (found: node:ExternalIP), the first of 1"
	live := Look(f, given, Reports{Agents: agents})
	if diff := cmp.Diff(map[string]string{"g1/a": "g1-a"}, live.Trips[0].Hops[0].Links[0].Held); diff != "" {
		t.Errorf("of agents (-want +got)\n%s", diff)
	}
	want := map[string]string{"g2/a": "203.0.113.9 (found: node:ExternalIP), the first of 1"}
	if diff := cmp.Diff(want, live.Trips[0].Hops[0].Links[0].Reached); diff != "" {
		t.Errorf("reached (-want +got)\n%s", diff)
	}
}
