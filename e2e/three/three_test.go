// Package three tests the clusterset that the scenarios and chaos share: g1 and g2 with three
// gateways each, and g3 with one. All clusters have the same prefixes.
package three

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/lab/workload"
	"hawser.dev/hawser/schema/load"
)

// TestValid tests that the topology is valid with mapped and with shared egress, and that the
// workloads are valid manifests.
func TestValid(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("clusterset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mapped := string(raw)
	shared := strings.Replace(mapped, "\nspec:\n", "\nspec:\n  globalnet: {egress: shared}\n", 1)
	for name, topology := range map[string]string{"mapped": mapped, "shared": shared} {
		set, _, list := load.Topology("clusterset.yaml", []byte(topology))
		if list.HasErrors() {
			t.Fatalf("%s: %v", name, list)
		}
		if shared := set.Spec.Globalnet.Egress == "shared"; shared != (name == "shared") {
			t.Errorf("%s: egress %s", name, set.Spec.Globalnet.Egress)
		}
	}
	pods := 0
	for _, cluster := range []string{"g1", "g2", "g3"} {
		objects, _, err := workload.ReadDir(filepath.Join("workloads", cluster))
		if err != nil {
			t.Fatal(err)
		}
		all := workload.Set{}
		if err := all.Apply(objects); err != nil {
			t.Fatal(err)
		}
		pods += len(all.Pods(nil))
	}
	if pods != 12 {
		t.Errorf("%d pods, want 12", pods)
	}
}
