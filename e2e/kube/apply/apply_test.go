//go:build kube

package apply

import (
	"regexp"
	"strings"
	"testing"
)

// changes returns the lines of an output about objects and fields. It leaves out signatures, which
// depend on the time.
func changes(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  ") {
			kept = append(kept, regexp.MustCompile(`(\.sig"\]: ).*`).ReplaceAllString(line, "${1}signed"))
		}
	}
	return strings.Join(kept, "")
}

// TestApply applies trees to an empty cluster: new, changed and removed objects. Each dry run prints
// exactly the changes of the following apply, except signatures. A second apply changes nothing.
func TestApply(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "g1")
	g1 := r.servers["g1"]
	step := func(name string, wants ...string) {
		t.Helper()
		dry := r.expect(1, "apply", "--dry-run")
		done := r.must("apply")
		if changes(dry.out) != changes(done) {
			t.Errorf("%s: the dry run says\n%s\nand the apply\n%s", name, dry.out, done)
		}
		for _, want := range wants {
			if !strings.Contains(done, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, done)
			}
		}
		if again := r.expect(0, "apply", "--dry-run"); !strings.Contains(again.out, ": 0 to create, 0 to change, 0 to delete") {
			t.Errorf("%s: a second apply would change\n%s", name, again.out)
		}
	}

	r.topology([]string{"g1"}, "shop/web", "shop/api", "default/late")
	step("new", "+ Namespace hawser-system", "+ Secret hawser-system/hawser-trust", "+ DaemonSet hawser-system/", "+ ServiceExport default/late",
		"skipped ServiceExport shop/web: there is no namespace shop yet: the next apply tries again")

	g1.K(t, "create", "namespace", "shop")
	step("a namespace comes", "+ ServiceExport shop/web", "+ ServiceExport shop/api")

	r.topology([]string{"g1"}, "shop/api", "default/late")
	step("an export leaves", "- ServiceExport shop/web", "~ ConfigMap hawser-system/hawser-fabric")
	if out, err := g1.Try("-n", "shop", "get", "serviceexport", "web"); err == nil {
		t.Errorf("the export that left is still there: %s", out)
	}

	g1.K(t, "-n", "hawser-system", "patch", "configmap", "hawser-identity", "--type=merge", "--field-manager=editor", "-p", `{"data":{"cluster":"g9"}}`)
	live := r.expect(1, "diff", "--live")
	for _, want := range []string{"~ ConfigMap hawser-system/hawser-identity", "data.cluster: g9 -> g1  # held by editor"} {
		if !strings.Contains(live.out, want) {
			t.Errorf("diff --live lacks %q:\n%s", want, live.out)
		}
	}
	step("drift", "data.cluster: g9 -> g1  # held by editor")
	if live := r.expect(0, "diff", "--live"); strings.Contains(live.out, "~") {
		t.Errorf("after the apply diff --live says\n%s", live.out)
	}
}
