package apply

import (
	"testing"
)

// TestAgree: the question comes once, with the plans of all clusters, before the first
// change; a no changes nothing, and a yes carries out what was shown.
func TestAgree(t *testing.T) {
	t.Parallel()
	one, g1 := newFake(t, "g1")
	two, g2 := newFake(t, "g2")
	for _, f := range []*fakeAPI{one, two} {
		f.kinds["v1"] = append(f.kinds["v1"], resource{"serviceaccounts", "ServiceAccount", true, nil})
		f.kinds["rbac.authorization.k8s.io/v1"] = []resource{{"clusterroles", "ClusterRole", false, nil}, {"clusterrolebindings", "ClusterRoleBinding", false, nil},
			{"roles", "Role", true, nil}, {"rolebindings", "RoleBinding", true, nil}}
		f.kinds["admissionregistration.k8s.io/v1"] = []resource{{"validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, nil},
			{"validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, nil}}
	}
	tree := treeOf(t, nil, []string{"g1", "g2"}, "hawser-system/web")
	clusters := []*Client{g1, g2}
	shown := 0
	ask := func(say bool) []Result {
		return All(t.Context(), tree, clusters, Options{Rules: Rules{AllowOtherCluster: true}, Say: func(string, string) {}, Confirm: func(planned []Result) bool {
			if shown++; len(planned) != 2 || planned[0].Plan == nil || planned[1].Plan == nil || planned[0].Empty() || planned[1].Empty() {
				t.Errorf("asked with the plans %+v", planned)
			}
			if log := append(one.changed(), two.changed()...); len(log) > 0 {
				t.Errorf("changed before the answer: %v", log)
			}
			return say
		}})
	}
	for _, r := range ask(false) {
		if r.Applied || r.Error != "" {
			t.Errorf("%s after a no: %+v", r.Cluster, r)
		}
	}
	if log := append(one.changed(), two.changed()...); len(log) > 0 {
		t.Errorf("a no changes %v", log)
	}
	for _, r := range ask(true) {
		if !r.Applied || r.Error != "" {
			t.Errorf("%s after a yes: %s", r.Cluster, r.Error)
		}
	}
	if shown != 2 {
		t.Errorf("asked %d times", shown)
	}
	if len(one.changed()) == 0 || len(two.changed()) == 0 {
		t.Error("a yes changes nothing")
	}
}
