//go:build kube

package gitops

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// ordered contains the kind of the agents and the kinds that they need.
var ordered = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
}

// creations records the creation of Hawser's objects.
type creations struct {
	mu    sync.Mutex
	kinds map[int]string // kind by resource version
}

// watchCreations starts watching the creation of the ordered kinds.
func (r *testCluster) watchCreations(t testing.TB) *creations {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &creations{kinds: map[int]string{}}
	var wait sync.WaitGroup
	t.Cleanup(wait.Wait)
	for _, resource := range ordered {
		events, err := client.Resource(resource).Watch(t.Context(), meta.ListOptions{LabelSelector: hawserLabel[len("-l"):]})
		if err != nil {
			t.Fatalf("watch %s: %v", resource.Resource, err)
		}
		wait.Go(func() {
			for e := range events.ResultChan() {
				c.record(e)
			}
		})
		t.Cleanup(events.Stop)
	}
	return c
}

func (c *creations) record(e watch.Event) {
	o, ok := e.Object.(*unstructured.Unstructured)
	if !ok || e.Type != watch.Added {
		return
	}
	if at, err := strconv.Atoi(o.GetResourceVersion()); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kinds[at] = o.GetKind()
	}
}

// order returns the kinds of created objects, first to last.
func (c *creations) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var at []int
	for n := range c.kinds {
		at = append(at, n)
	}
	slices.Sort(at)
	var out []string
	for _, n := range at {
		out = append(out, c.kinds[n])
	}
	return out
}

// checkOrder checks that the namespace was created first, and the agents last.
func (r *testCluster) checkOrder(t *testing.T, c *creations) {
	t.Helper()
	var names string
	for _, resource := range ordered {
		names += "," + resource.Resource
	}
	var have []string
	eventually(t, "all that is made was seen", func() (string, bool) {
		have = c.order()
		return fmt.Sprint(have), len(have) == len(r.list(t, names[1:], hawserLabel))
	})
	agents := slices.Index(have, "DaemonSet")
	if agents != len(have)-2 || have[0] != "Namespace" || !slices.Contains(have, "CustomResourceDefinition") || !slices.Contains(have, "ClusterRoleBinding") {
		t.Errorf("creation order %v", have)
	}
}
