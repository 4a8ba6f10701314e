package kubeclient

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/render"
)

// PodKind returns the kind of pods.
func PodKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// AgentPods returns the pods of agents that have not terminated.
func (c *Client) AgentPods(ctx context.Context) ([]unstructured.Unstructured, error) {
	items, err := c.List(ctx, PodKind(), render.Namespace, "")
	return slices.DeleteFunc(items, func(p unstructured.Unstructured) bool {
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed" || IsUIPod(&p)
	}), err
}

// IsUIPod reports whether a pod serves the web page.
func IsUIPod(p *unstructured.Unstructured) bool {
	return p.GetLabels()["app.kubernetes.io/name"] == render.UIName
}
