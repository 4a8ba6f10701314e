package projection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
)

// TestRoutes checks that Routes returns the routes of Desired.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			got := projection.Routes(in)
			if diff := cmp.Diff(w.states[name].Routes, got, cmp.Comparer(func(a, b desired.Route) bool { return a == b })); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", file, name, diff)
			}
		}
	}
	if got := projection.Routes(projection.Input{Fabric: bigInput(2, 1).Fabric, Cluster: "nowhere"}); got != nil {
		t.Errorf("routes of a cluster that does not exist: %v", got)
	}
}

func BenchmarkRoutes(b *testing.B) {
	in := bigInput(1000, 10000)
	for b.Loop() {
		projection.Routes(in)
	}
}
