package uninstall

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/kubeclient"
)

// hawserGroup is the API group of Hawser's own kinds.
const hawserGroup = "hawser.dev"

// finder finds objects of Hawser.
type finder func(context.Context, *kubeclient.Client) ([]unstructured.Unstructured, error)

// finders returns all finders in the order of deletion.
func finders(r Options) []finder {
	rbac, admission := "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	labelled := func(group, version, kind, label string) finder {
		return func(ctx context.Context, c *kubeclient.Client) ([]unstructured.Unstructured, error) {
			return c.List(ctx, schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, "", label)
		}
	}
	return []finder{
		labelled("apps", "v1", kubeclient.KindDaemonSet, kubeclient.LabelRendered),
		r.inventoryObjects,
		labelled("multicluster.x-k8s.io", "v1beta1", kubeclient.KindServiceExport, kubeclient.LabelRendered),
		labelled("multicluster.x-k8s.io", "v1beta1", "ServiceImport", kubeclient.LabelByAgents),
		labelled("discovery.k8s.io", "v1", "EndpointSlice", kubeclient.LabelEndpointSlices),
		labelled("about.k8s.io", "v1beta1", "ClusterProperty", kubeclient.LabelByAgents),
		labelled(admission, "v1", "ValidatingAdmissionPolicyBinding", kubeclient.LabelRendered),
		labelled(admission, "v1", "ValidatingAdmissionPolicy", kubeclient.LabelRendered),
		labelled(rbac, "v1", "RoleBinding", kubeclient.LabelRendered),
		labelled(rbac, "v1", "Role", kubeclient.LabelRendered),
		labelled(rbac, "v1", "ClusterRoleBinding", kubeclient.LabelRendered),
		labelled(rbac, "v1", "ClusterRole", kubeclient.LabelRendered),
		labelled("apiextensions.k8s.io", "v1", kubeclient.KindCRD, kubeclient.LabelRendered),
		labelled("", "v1", kubeclient.KindNamespace, kubeclient.LabelRendered),
	}
}

// inventoryObjects returns the objects in the inventory that hawser apply still owns.
func (r Options) inventoryObjects(ctx context.Context, c *kubeclient.Client) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, id := range slices.Backward(slices.SortedFunc(slices.Values(r.have.Objects), kubeclient.CompareIDs)) {
		o, err := c.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if o != nil && apply.OwnFields(o) != "" {
			out = append(out, *o)
		}
	}
	return out, nil
}

// addressesAnnotation is set by agents on the ServiceExports of users
// (nodeagent/mcs.AddressesAnnotation).
const addressesAnnotation = "hawser.dev/addresses"

func cleanExport(ctx context.Context, c *kubeclient.Client, o *unstructured.Unstructured) error {
	var errs []error
	if o.GetAnnotations()[addressesAnnotation] != "" {
		errs = append(errs, c.MergePatch(ctx, o, map[string]any{"metadata": map[string]any{"annotations": map[string]any{addressesAnnotation: nil}}}))
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	kept := slices.DeleteFunc(slices.Clone(conditions), func(item any) bool {
		c, _ := item.(map[string]any)
		return c["type"] == "Valid" || c["type"] == "Ready" || c["type"] == "Conflict"
	})
	isOwner := slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "hawser" && f.Subresource == "status"
	})
	if isOwner && len(kept) != len(conditions) {
		errs = append(errs, c.MergePatch(ctx, o, map[string]any{"status": map[string]any{"conditions": kept}}, "status"))
	}
	return errors.Join(errs...)
}
