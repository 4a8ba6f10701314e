package apply

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
)

// Execute applies a plan. It continues after an error. It writes the inventory before the first
// object and after the last one. So the next apply knows all objects and retries the failed ones.
func Execute(ctx context.Context, c *kubeclient.Client, p *Plan) error {
	upserts, deletes := p.split()
	namespaces, rest := SplitKind(upserts, kubeclient.KindNamespace)
	if err := applyAll(ctx, c, namespaces); err != nil {
		return err
	}
	// Until the end, the inventory has both the previous and the new objects, in case apply is
	// interrupted.
	union := p.want.inventory(p.have.Objects)
	union.Digest = p.have.Digest
	if !p.Empty() && !p.want.hasDelivery() &&
		(len(p.have.Objects) == 0 || !sameObjects(union, p.have)) {
		if err := writeInventory(ctx, c, union); err != nil {
			return err
		}
	}
	definitions, rest := SplitKind(rest, kubeclient.KindCRD)
	if err := applyAll(ctx, c, definitions); err != nil {
		return err
	}
	if err := c.WaitEstablished(ctx, p.want.Objects, len(upserts) > 0); err != nil {
		return err
	}
	if err := applyAll(ctx, c, rest); err != nil {
		// Do not delete objects whose replacements may be missing.
		return err
	}
	remaining, err := DeleteAll(ctx, c, deletes)
	return errors.Join(err, saveInventory(ctx, c, p, remaining))
}

func (p *Plan) split() (upserts, deletes []Change) {
	for _, change := range p.Changes {
		if change.Op == diff.Delete {
			deletes = append(deletes, change)
		} else {
			upserts = append(upserts, change)
		}
	}
	return upserts, deletes
}

// SplitKind splits changes into changes of one kind and all others.
func SplitKind(changes []Change, kind string) (matching, rest []Change) {
	for _, change := range changes {
		if change.Kind == kind {
			matching = append(matching, change)
		} else {
			rest = append(rest, change)
		}
	}
	return matching, rest
}

// saveInventory writes the inventory if it changed. It contains the objects of the tree, and
// ids, the objects that could not be deleted.
func saveInventory(ctx context.Context, c *kubeclient.Client, p *Plan, ids []kubeclient.ID) error {
	if p.want.hasDelivery() {
		return nil
	}
	now := p.want.inventory(ids)
	for _, retained := range p.Retained {
		now.Objects = append(now.Objects, retained.ID)
	}
	if sameObjects(now, p.have) && now.Digest == p.have.Digest && now.Cluster == p.have.Cluster {
		return nil
	}
	return writeInventory(ctx, c, now)
}

func sameObjects(a, b clusterstatus.Inventory) bool {
	keys := func(i clusterstatus.Inventory) []string {
		var out []string
		for _, id := range i.Objects {
			out = append(out, id.Line())
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(keys(a), keys(b))
}

// applyAll applies the objects in order. It continues after an error.
func applyAll(ctx context.Context, c *kubeclient.Client, changes []Change) error {
	var errs []error
	for _, change := range changes {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if _, err := c.Apply(ctx, change.Object, false); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// DeleteAll deletes the objects in order, and continues after an error. It returns the objects that
// remain.
func DeleteAll(ctx context.Context, c *kubeclient.Client, changes []Change) (remaining []kubeclient.ID, err error) {
	var errs []error
	for _, change := range changes {
		if err := c.Delete(ctx, change.ID, change.UID); err != nil {
			remaining = append(remaining, change.ID)
			errs = append(errs, err)
		}
	}
	return remaining, errors.Join(errs...)
}

// writeInventory writes the inventory.
func writeInventory(ctx context.Context, c *kubeclient.Client, i clusterstatus.Inventory) error {
	var lines strings.Builder
	objects := slices.SortedFunc(slices.Values(i.Objects), kubeclient.CompareIDs)
	objects = slices.CompactFunc(objects, func(a, b kubeclient.ID) bool { return a.Key() == b.Key() })
	for _, id := range objects {
		lines.WriteString(id.Line() + "\n")
	}
	_, err := c.Apply(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": clusterstatus.InventoryConfigMap, "namespace": render.Namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "hawser", "app.kubernetes.io/managed-by": kubeclient.FieldManager},
		},
		"data": map[string]any{"clusterset": i.Clusterset, "cluster": i.Cluster, "digest": i.Digest, "objects": lines.String()},
	}}, false)
	return err
}
