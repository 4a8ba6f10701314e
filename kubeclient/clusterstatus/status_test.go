package clusterstatus_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/kubeclient/fakeapi"
)

// applyTree applies a tree of one cluster.
func applyTree(t *testing.T, api *fakeapi.API, c *kubeclient.Client) {
	t.Helper()
	api.ServeTrees()
	for _, r := range apply.All(t.Context(), fakeapi.Tree(t, nil, []string{c.Name}), []*kubeclient.Client{c}, apply.Options{
		Rules: apply.Rules{AllowOtherCluster: true}, Say: func(string, string) {},
	}) {
		if !r.Applied || r.Error != "" {
			t.Fatalf("apply: %s", r.Error)
		}
	}
}

// TestImportsOfOthers do not count as ours.
func TestImportsOfOthers(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	applyTree(t, api, c)
	put := func(namespace string, labels map[string]any) {
		api.Mu.Lock()
		defer api.Mu.Unlock()
		api.Objects["/apis/multicluster.x-k8s.io/v1beta1/serviceimports/"+namespace] = map[string]any{
			"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
			"metadata": map[string]any{"name": "web", "namespace": namespace, "labels": labels}, "spec": map[string]any{"type": "ClusterSetIP"},
		}
	}
	put("ours", map[string]any{"app.kubernetes.io/managed-by": "hawser"})
	put("theirs", map[string]any{"app.kubernetes.io/managed-by": "lighthouse"})
	s := clusterstatus.Read(t.Context(), c)
	if len(s.Exports) != 1 || s.Exports[0].Namespace != "ours" || s.Exports[0].Type == "" {
		t.Errorf("have %+v, error %q", s.Exports, s.Error)
	}
}

// TestNodeLocalCache that does not lead the domain to the agents is told.
func TestNodeLocalCache(t *testing.T) {
	t.Parallel()
	const bare, led = ".:53 {\n bind 169.254.20.10\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n", "clusterset.local:53 {\n forward . 169.254.73.53\n}\n"
	const maps = "/api/v1/namespaces/kube-system/configmaps/"
	daemons := fakeapi.Object("DaemonSet", "kube-system", "node-local-dns", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"volumes": []any{map[string]any{"hostPath": map[string]any{}}, map[string]any{"configMap": map[string]any{"name": "cache"}}}}}}})
	settings := func(name, text string) map[string]any {
		return fakeapi.Object("ConfigMap", "kube-system", name, map[string]any{"data": map[string]any{"Corefile": text}})
	}
	for _, tt := range []struct {
		name, want string
		objects    map[string]map[string]any
	}{
		{"none", "", nil},
		{"not led", "kube-system/node-local-dns; say clusters[].dns: node-local in the topology, or give it a server block for clusterset.local with forward . 169.254.73.53",
			map[string]map[string]any{maps + "node-local-dns": settings("node-local-dns", bare)}},
		{"led", "", map[string]map[string]any{maps + "node-local-dns": settings("node-local-dns", led+bare)}},
		{"of another name", "kube-system/cache; give it a server block for clusterset.local",
			map[string]map[string]any{maps + "cache": settings("cache", bare), "/apis/apps/v1/namespaces/kube-system/daemonsets/node-local-dns": daemons}},
	} {
		api, c := fakeapi.New(t, "g1")
		applyTree(t, api, c)
		for path, o := range tt.objects {
			api.Objects[path] = o
		}
		s := clusterstatus.Read(t.Context(), c)
		if s.Error != "" || (s.DNSProblem == "") != (tt.want == "") || !strings.Contains(s.DNSProblem, tt.want) {
			t.Errorf("%s: have %q, error %q", tt.name, s.DNSProblem, s.Error)
		}
	}
}
