package apply

import "testing"

// TestImportsOfOthers do not count as ours.
func TestImportsOfOthers(t *testing.T) {
	t.Parallel()
	api, c := newFake(t, "g1")
	carried(t, c, workable(t, treeOf(t, nil, []string{"g1"}), "g1"))
	put := func(namespace string, labels map[string]any) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.objects["/apis/multicluster.x-k8s.io/v1beta1/serviceimports/"+namespace] = map[string]any{
			"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
			"metadata": map[string]any{"name": "web", "namespace": namespace, "labels": labels}, "spec": map[string]any{"type": "ClusterSetIP"},
		}
	}
	put("ours", map[string]any{"app.kubernetes.io/managed-by": "hawser"})
	put("theirs", map[string]any{"app.kubernetes.io/managed-by": "lighthouse"})
	s := c.State(t.Context())
	if len(s.Exports) != 1 || s.Exports[0].Namespace != "ours" || s.Exports[0].Type == "" {
		t.Errorf("have %+v, error %q", s.Exports, s.Error)
	}
}
