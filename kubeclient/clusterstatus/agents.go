package clusterstatus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// Node is what one agent says of itself in its HawserNode.
type Node struct {
	Name      string `json:"name"`
	Cluster   string `json:"cluster"`
	Role      string `json:"role"`              // gateway | worker
	Gateway   string `json:"gateway,omitempty"` // that it holds, where labels picked the node
	Version   string `json:"version,omitempty"`
	Fabric    string `json:"fabric,omitempty"` // digest
	Up        int64  `json:"linksUp"`
	Links     int64  `json:"links"`
	Ready     string `json:"ready"` // True | False | Unknown
	Why       string `json:"why,omitempty"`
	Drained   bool   `json:"drained,omitempty"`
	LastError string `json:"lastError,omitempty"`
	// Changed is when the agent's condition Ready changed last.
	Changed time.Time `json:"changed,omitzero"`
}

func HawserNodeKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "hawser.dev", Version: "v1alpha1", Kind: "HawserNode"}
}

// Nodes reads the HawserNodes of a cluster, by name.
func Nodes(ctx context.Context, c *kubeclient.Client) ([]Node, error) {
	items, err := c.List(ctx, HawserNodeKind(), "", "")
	if err != nil {
		return nil, err
	}
	var out []Node
	for i := range items {
		o := &items[i]
		word := func(fields ...string) string {
			out, _, _ := unstructured.NestedString(o.Object, append([]string{"status"}, fields...)...)
			return out
		}
		number := func(fields ...string) int64 {
			out, _, _ := unstructured.NestedInt64(o.Object, append([]string{"status"}, fields...)...)
			return out
		}
		n := Node{
			Name: o.GetName(), Cluster: word("cluster"), Role: word("role"), Gateway: word("gateway"), Version: word("version"), Fabric: word("fabric"),
			Up: number("links", "up"), Links: number("links", "total"), LastError: word("lastError"),
			Ready: cmp.Or(kubeclient.ConditionStatus(o, "Ready"), "Unknown"), Drained: kubeclient.ConditionStatus(o, "Drained") == "True",
		}
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, item := range list {
			ready, ok := item.(map[string]any)
			if !ok || ready["type"] != "Ready" {
				continue
			}
			n.Why, _ = ready["message"].(string)
			text, _ := ready["lastTransitionTime"].(string)
			if at, err := time.Parse(time.RFC3339, text); err == nil {
				n.Changed = at
			}
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// rollout is how far a DaemonSet's pods are.
type rollout struct {
	name                       string
	wanted, updated, available int64
	observed                   bool // the controller saw the newest version
}

func DaemonSetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kubeclient.KindDaemonSet}
}

// rollouts reads the DaemonSets of Hawser.
func rollouts(ctx context.Context, c *kubeclient.Client) ([]rollout, error) {
	items, err := c.List(ctx, DaemonSetKind(), render.Namespace, "")
	if err != nil {
		return nil, err
	}
	var out []rollout
	for i := range items {
		number := func(name string) int64 {
			n, _, _ := unstructured.NestedInt64(items[i].Object, "status", name)
			return n
		}
		out = append(out, rollout{
			name: items[i].GetName(), wanted: number("desiredNumberScheduled"), updated: number("updatedNumberScheduled"),
			available: number("numberAvailable"), observed: number("observedGeneration") >= items[i].GetGeneration(),
		})
	}
	return out, nil
}

// WaitReady waits until the agents run and are ready with the fabric of a digest. It
// returns the last progress, also with an error.
func WaitReady(ctx context.Context, c *kubeclient.Client, digest string, timeout time.Duration, say func(string)) (string, error) {
	last := ""
	err := kubeclient.Poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		now, done, err := progress(ctx, c, digest)
		if err != nil {
			return false, nil // an API server that restarts meanwhile is no reason to give up
		}
		if now != last && !done {
			say(now)
		}
		last = now
		return done, nil
	})
	if err != nil {
		return last, fmt.Errorf("waited %s: %s", timeout, cmp.Or(last, "the API gave no answer"))
	}
	return last, nil
}

// progress says how far a cluster is on the way to a fabric.
func progress(ctx context.Context, c *kubeclient.Client, digest string) (string, bool, error) {
	sets, err := rollouts(ctx, c)
	if err != nil {
		return "", false, err
	}
	nodes, err := Nodes(ctx, c)
	if err != nil {
		return "", false, err
	}
	var pods, running int64
	done := len(sets) > 0
	for _, s := range sets {
		pods, running = pods+s.wanted, running+min(s.updated, s.available)
		done = done && s.observed && s.updated >= s.wanted && s.available >= s.wanted
	}
	follow, ready := int64(0), int64(0)
	for _, n := range nodes {
		if n.Fabric == digest {
			follow++
		}
		if n.Fabric == digest && n.Ready == "True" {
			ready++
		}
	}
	text := fmt.Sprintf("%d of %d agents run, %d follow fabric %s, %d are ready", running, pods, follow, digest, ready)
	return text, done && ready >= pods, nil
}
