package apply

import (
	"testing"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
)

// TestConfirm checks that All asks once, with the plans of all clusters, before the first change.
// No changes nothing; yes executes the plans as shown.
func TestConfirm(t *testing.T) {
	t.Parallel()
	one, g1 := fakeapi.New(t, "g1")
	two, g2 := fakeapi.New(t, "g2")
	for _, f := range []*fakeapi.API{one, two} {
		f.ServeTrees()
	}
	tree := fakeapi.Tree(t, nil, []string{"g1", "g2"}, "hawser-system/web")
	clusters := []*kubeclient.Client{g1, g2}
	shown := 0
	run := func(confirm bool) []Result {
		return All(t.Context(), tree, clusters, Options{Rules: Rules{AllowOtherCluster: true}, Log: func(string, string) {}, Confirm: func(planned []Result) bool {
			if shown++; len(planned) != 2 || planned[0].Plan == nil || planned[1].Plan == nil || planned[0].Empty() || planned[1].Empty() {
				t.Errorf("asked with the plans %+v", planned)
			}
			if log := append(one.Changed(), two.Changed()...); len(log) > 0 {
				t.Errorf("changed before the answer: %v", log)
			}
			return confirm
		}})
	}
	for _, r := range run(false) {
		if r.Applied || r.Error != "" {
			t.Errorf("%s after a no: %+v", r.Cluster, r)
		}
	}
	if log := append(one.Changed(), two.Changed()...); len(log) > 0 {
		t.Errorf("a no changes %v", log)
	}
	for _, r := range run(true) {
		if !r.Applied || r.Error != "" {
			t.Errorf("%s after a yes: %s", r.Cluster, r.Error)
		}
	}
	if shown != 2 {
		t.Errorf("asked %d times", shown)
	}
	if len(one.Changed()) == 0 || len(two.Changed()) == 0 {
		t.Error("a yes changes nothing")
	}
}
