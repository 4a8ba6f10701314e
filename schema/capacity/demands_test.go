package capacity_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema/capacity"
	"hawser.dev/hawser/schema/load"
)

func TestDemands(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/clusterset.full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, _, list := load.Topology("x.yaml", raw)
	if len(list) > 0 {
		t.Fatal(list)
	}
	want := map[string]capacity.Requirement{
		"g1": {Egress: 8, Rules: 2},
		"g2": {Egress: 8, Exports: 1, Hosts: 8},
		"g3": {Egress: 8},
	}
	if d := cmp.Diff(want, capacity.Requirements(set)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
