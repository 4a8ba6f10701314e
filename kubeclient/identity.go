package kubeclient

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/render"
)

// HasIdentity reports whether the cluster has the Secret of an age identity. It only requests the
// Secret's metadata.
func (c *Client) HasIdentity(ctx context.Context) (bool, error) {
	request, err := c.Request(requestTimeout)
	if err != nil {
		return false, err
	}
	_, err = request.AbsPath("/api/v1/namespaces", render.Namespace, "secrets", IdentitySecret).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").DoRaw(ctx)
	if kerrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read metadata of Secret %s/%s: %w", render.Namespace, IdentitySecret, err)
	}
	return true, nil
}

// PutIdentity creates the Secret with the cluster's age identity, and its namespace. If the Secret
// exists, it returns an error and does not change the Secret.
func (c *Client) PutIdentity(ctx context.Context, identity string) error {
	options := metav1.CreateOptions{FieldManager: FieldManager}
	_, err := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(ctx,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": KindNamespace, "metadata": map[string]any{"name": render.Namespace},
		}}, options)
	if err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Namespace %s: %w", render.Namespace, err)
	}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	_, err = c.client.Resource(secrets).Namespace(render.Namespace).Create(ctx, IdentityObject(identity), options)
	if err != nil {
		return fmt.Errorf("create Secret %s/%s: %w", render.Namespace, IdentitySecret, err)
	}
	return nil
}

// Name and key of the Secret with a cluster's age identity, as in the rendered DaemonSets.
const (
	IdentitySecret = "hawser-age-identity"
	IdentityKey    = "identity.txt"
)

func IdentityObject(identity string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": KindSecret,
		"metadata": map[string]any{"name": IdentitySecret, "namespace": render.Namespace},
		"type":     "Opaque",
		"data":     map[string]any{IdentityKey: Base64(identity)},
	}}
}
