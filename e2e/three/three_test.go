package three

import (
	"path/filepath"
	"testing"

	"hawser.dev/hawser/lab/workload"
	"hawser.dev/hawser/schema/load"
)

// TestValid: every variant is a valid topology, and the workloads are manifests.
func TestValid(t *testing.T) {
	t.Parallel()
	for name, topology := range map[string]string{"mapped": Clusterset(), "shared": Shared(), "fast": Fast(Shared())} {
		dir := filepath.Join(t.TempDir(), name)
		if err := Write(dir, topology); err != nil {
			t.Fatal(err)
		}
		set, _, list := load.Topology("clusterset.yaml", []byte(topology))
		if list.HasErrors() {
			t.Fatalf("%s: %v", name, list)
		}
		if shared := set.Spec.Globalnet.Egress == "shared"; shared != (name != "mapped") {
			t.Errorf("%s: egress %s", name, set.Spec.Globalnet.Egress)
		}
		pods := 0
		for _, cluster := range []string{"g1", "g2", "g3"} {
			objects, err := workload.ReadDir(filepath.Join(dir, "workloads", cluster))
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
}
