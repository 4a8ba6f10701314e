package arrival

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric/explain"
)

// TestHeld: of a gateway whose node labels pick, files say which nodes may be it, and agents
// which one is.
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
	live := Look(f, given, Reports{Agents: []status.Status{agent("g1", "g1-a"), agent("g1", "g1-w"), agent("g2", "g2-a")}})
	if diff := cmp.Diff(map[string]string{"g1/a": "g1-a"}, live.Trips[0].Hops[0].Links[0].Held); diff != "" {
		t.Errorf("of agents (-want +got)\n%s", diff)
	}
}
