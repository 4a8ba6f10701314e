package clusterstatus_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/health"
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
		Rules: apply.Rules{AllowOtherCluster: true}, Log: func(string, string) {},
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
	addImport := func(namespace string, labels map[string]any) {
		api.Mu.Lock()
		defer api.Mu.Unlock()
		api.Objects["/apis/multicluster.x-k8s.io/v1beta1/serviceimports/"+namespace] = map[string]any{
			"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
			"metadata": map[string]any{"name": "web", "namespace": namespace, "labels": labels}, "spec": map[string]any{"type": "ClusterSetIP"},
		}
	}
	addImport("ours", map[string]any{"app.kubernetes.io/managed-by": "hawser"})
	addImport("theirs", map[string]any{"app.kubernetes.io/managed-by": "lighthouse"})
	s := clusterstatus.Read(t.Context(), c)
	if len(s.Exports) != 1 || s.Exports[0].Namespace != "ours" || s.Exports[0].Type == "" {
		t.Errorf("have %+v, error %q", s.Exports, s.Error)
	}
}

// TestNodeLocalCache: a NodeLocal DNSCache that does not forward the domain to the agents is reported.
func TestNodeLocalCache(t *testing.T) {
	t.Parallel()
	const plain, forwarded = ".:53 {\n bind 169.254.20.10\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n", "clusterset.local:53 {\n forward . 169.254.73.53\n}\n"
	const configMaps = "/api/v1/namespaces/kube-system/configmaps/"
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
		{"not forwarded", "kube-system/node-local-dns; set clusters[].dns: node-local in the topology, or add a server block for clusterset.local with forward . 169.254.73.53",
			map[string]map[string]any{
				configMaps + "node-local-dns": settings("node-local-dns", plain)}},
		{"forwarded", "", map[string]map[string]any{configMaps + "node-local-dns": settings("node-local-dns", forwarded+plain)}},
		{"of another name", "kube-system/cache; add a server block for clusterset.local",
			map[string]map[string]any{configMaps + "cache": settings("cache", plain), "/apis/apps/v1/namespaces/kube-system/daemonsets/node-local-dns": daemons}},
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

// TestStopped checks that nodes that are off, and agents that do not run or are not ready, are read with their reason.
func TestStopped(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	applyTree(t, api, c)
	api.Mu.Lock()
	api.Kinds["v1"] = append(api.Kinds["v1"], fakeapi.Resource{Name: "nodes", Kind: "Node"}, fakeapi.Resource{Name: "pods", Kind: "Pod", Namespaced: true})
	api.Kinds["hawser.dev/v1alpha1"] = []fakeapi.Resource{{Name: "hawsernodes", Kind: "HawserNode"}}
	object := func(version, kind, namespace, name string, fields map[string]any) map[string]any {
		o := fakeapi.Object(kind, namespace, name, fields)
		o["apiVersion"] = version
		return o
	}
	conditions := func(ready string) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-27T10:41:12Z"},
		}}}
	}
	for name, ready := range map[string]string{"n1": "Unknown", "n2": "True"} {
		api.Objects["/api/v1/nodes/"+name] = object("v1", "Node", "", name, conditions(ready))
		api.Objects["/apis/hawser.dev/v1alpha1/hawsernodes/"+name] = object("hawser.dev/v1alpha1", "HawserNode", "", name, conditions("True"))
	}
	pod := object("v1", "Pod", "hawser-system", "hawser-agent-x", map[string]any{
		"spec": map[string]any{"nodeName": "n2", "containers": []any{map[string]any{"name": "agent", "image": "hawser-agent:v9.9.9"}}},
		"status": map[string]any{"phase": "Pending", "containerStatuses": []any{
			map[string]any{"name": "agent", "state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull"}}},
		}},
	})
	pod["metadata"].(map[string]any)["ownerReferences"] = []any{
		map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "hawser-agent", "uid": "u", "controller": true},
	}
	api.Objects["/api/v1/namespaces/hawser-system/pods/hawser-agent-x"] = pod
	for name, ready := range map[string]string{"hawser-agent-y": "False", "hawser-agent-z": "True"} { // their containers run
		fields := conditions(ready)
		fields["spec"], fields["status"].(map[string]any)["phase"] = map[string]any{"nodeName": "n2"}, "Running"
		running := object("v1", "Pod", "hawser-system", name, fields)
		running["metadata"].(map[string]any)["ownerReferences"] = pod["metadata"].(map[string]any)["ownerReferences"]
		api.Objects["/api/v1/namespaces/hawser-system/pods/"+name] = running
	}
	path := "/apis/apps/v1/namespaces/hawser-system/daemonsets/hawser-agent"
	api.Objects[path]["status"] = map[string]any{"desiredNumberScheduled": int64(2), "updatedNumberScheduled": int64(1), "numberAvailable": int64(1), "observedGeneration": int64(9)}
	api.Mu.Unlock()
	s := clusterstatus.Read(t.Context(), c)
	if s.Error != "" || len(s.Nodes) != 2 || s.Nodes[0].NodeNotReady != "NotReady since 2026-11-27T10:41:12Z" || s.Nodes[1].NodeNotReady != "" {
		t.Errorf("nodes %+v, error %q", s.Nodes, s.Error)
	}
	if len(s.Stopped) != 1 || s.Stopped[0] != (health.Pod{Name: "hawser-agent-x", Node: "n2", Reason: "ErrImagePull hawser-agent:v9.9.9"}) || s.Outdated < 1 {
		t.Errorf("stopped %+v, outdated %d", s.Stopped, s.Outdated)
	}
	if len(s.NotReady) != 1 || s.NotReady[0] != (health.Pod{Name: "hawser-agent-y", Node: "n2", Reason: "since 2026-11-27T10:41:12Z"}) {
		t.Errorf("not ready %+v", s.NotReady)
	}
	if s.Delivered == "" || s.Image == "" {
		t.Errorf("delivered %q, image %q", s.Delivered, s.Image)
	}
}
