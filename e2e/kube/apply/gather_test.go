//go:build kube

package apply

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGather tests that the objects of a cluster's API are written, without possible secrets, and that
// the missing parts of a cluster without Hawser are listed.
func TestGather(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "g1", "g2")
	r.topology([]string{"g1", "g2"}, "default/web")
	r.must("apply", "--cluster", "g1")
	startAgent(t, r.servers["g1"], "g1", "g1-gw", "gateway")
	file := filepath.Join(r.dir, "out.tar.gz")
	got := r.expect(2, "gather", "--context", "g1=g1,g9=g2", "--out", file)
	for _, want := range []string{"queried: g1 (context g1), g9 (context g2)", "g1 Kubernetes v1.", "written to " + file} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the summary lacks %q:\n%s", want, got.out)
		}
	}
	out, err := exec.Command("tar", "-xzOf", file, "--wildcards", "*/clusters/g1/*").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{`"gitVersion"`, `"name": "demo"`, "kind: HawserNode", "kind: DaemonSet", "kind: ServiceExport", "name: hawser-identity", "name: hawser-inventory"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, never := range []string{"managedFields:", "kind: Secret\n", "keys.age:"} {
		if strings.Contains(string(out), never) {
			t.Errorf("%q is there", never)
		}
	}
	if !strings.Contains(got.err, "warning: clusters/g9/fabric.json: there is no ConfigMap hawser-system/hawser-fabric") {
		t.Errorf("the missing parts of g9 are not listed:\n%s", got.err)
	}
}
