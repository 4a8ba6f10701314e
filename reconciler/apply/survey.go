package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ownGroup is the API group of Hawser's own kinds.
const ownGroup = "hawser.dev"

// Labels by which objects of Hawser's are found, whoever applied them.
const (
	rendered   = "app.kubernetes.io/part-of=hawser"
	byAgents   = "app.kubernetes.io/managed-by=hawser"
	slicesOurs = "endpointslice.kubernetes.io/managed-by=hawser.dev"
)

func mcsKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: kind}
}

// finder finds objects of Hawser's.
type finder func(context.Context, *Client) ([]unstructured.Unstructured, error)

// finders are all of them, in the order of deletion.
func finders(r Removal) []finder {
	rbac, admission := "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	labelled := func(group, version, kind, label string) finder {
		return func(ctx context.Context, c *Client) ([]unstructured.Unstructured, error) {
			return c.list(ctx, schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, "", label)
		}
	}
	return []finder{
		labelled("apps", "v1", kindDaemonSet, rendered),
		r.inventoried,
		labelled("multicluster.x-k8s.io", "v1beta1", kindServiceExport, rendered),
		labelled("multicluster.x-k8s.io", "v1beta1", "ServiceImport", byAgents),
		labelled("discovery.k8s.io", "v1", "EndpointSlice", slicesOurs),
		labelled("about.k8s.io", "v1beta1", "ClusterProperty", byAgents),
		labelled(admission, "v1", "ValidatingAdmissionPolicyBinding", rendered),
		labelled(admission, "v1", "ValidatingAdmissionPolicy", rendered),
		labelled(rbac, "v1", "RoleBinding", rendered),
		labelled(rbac, "v1", "Role", rendered),
		labelled(rbac, "v1", "ClusterRoleBinding", rendered),
		labelled(rbac, "v1", "ClusterRole", rendered),
		labelled("apiextensions.k8s.io", "v1", kindCRD, rendered),
		labelled("", "v1", kindNamespace, rendered),
	}
}

// inventoried gives what hawser apply made and still holds.
func (r Removal) inventoried(ctx context.Context, c *Client) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, id := range slices.Backward(slices.SortedFunc(slices.Values(r.have.Objects), compareIDs)) {
		o, err := c.get(ctx, id)
		if err != nil {
			return nil, err
		}
		if o != nil && ownFields(o) != "" {
			out = append(out, *o)
		}
	}
	return out, nil
}

// addressesAnnotation is what agents write on ServiceExports of others
// (nodeagent/mcs.AddressesAnnotation).
const addressesAnnotation = "hawser.dev/addresses"

func (c *Client) cleanExport(ctx context.Context, o *unstructured.Unstructured) error {
	var errs []error
	if o.GetAnnotations()[addressesAnnotation] != "" {
		errs = append(errs, c.merge(ctx, o, map[string]any{"metadata": map[string]any{"annotations": map[string]any{addressesAnnotation: nil}}}))
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	kept := slices.DeleteFunc(slices.Clone(conditions), func(item any) bool {
		c, _ := item.(map[string]any)
		return c["type"] == "Valid" || c["type"] == "Ready" || c["type"] == "Conflict"
	})
	ours := slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "hawser" && f.Subresource == "status"
	})
	if ours && len(kept) != len(conditions) {
		errs = append(errs, c.merge(ctx, o, map[string]any{"status": map[string]any{"conditions": kept}}, "status"))
	}
	return errors.Join(errs...)
}

func (c *Client) merge(ctx context.Context, o *unstructured.Unstructured, patch map[string]any, subresources ...string) error {
	id := IDOf(o)
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	at, err := c.at(id.kind(), id.Namespace)
	if err == nil {
		_, err = at.Patch(ctx, id.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	}
	if err != nil && !kerrors.IsNotFound(err) {
		return fmt.Errorf("clean %s: %w", id, err)
	}
	return nil
}
