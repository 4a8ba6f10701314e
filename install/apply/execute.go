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
	spaces, rest := SplitKind(upserts, kubeclient.KindNamespace)
	if err := applyAll(ctx, c, spaces); err != nil {
		return err
	}
	// Until the end, the inventory has both the previous and the new objects, in case apply is
	// interrupted.
	both := p.want.inventory(p.have.Objects)
	both.Digest = p.have.Digest
	if !p.Empty() && !p.want.follows() && (len(p.have.Objects) == 0 || !sameObjects(both, p.have)) {
		if err := writeInventory(ctx, c, both); err != nil {
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
	left, err := DeleteAll(ctx, c, deletes)
	return errors.Join(err, saveInventory(ctx, c, p, left))
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
func SplitKind(changes []Change, kind string) (taken, rest []Change) {
	for _, change := range changes {
		if change.Kind == kind {
			taken = append(taken, change)
		} else {
			rest = append(rest, change)
		}
	}
	return taken, rest
}

// saveInventory writes the inventory if it changed. It contains the objects of the tree, and left,
// the objects that could not be deleted.
func saveInventory(ctx context.Context, c *kubeclient.Client, p *Plan, left []kubeclient.ID) error {
	if p.want.follows() {
		return nil
	}
	now := p.want.inventory(left)
	for _, kept := range p.Retained {
		now.Objects = append(now.Objects, kept.ID)
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
func DeleteAll(ctx context.Context, c *kubeclient.Client, changes []Change) (left []kubeclient.ID, err error) {
	var errs []error
	for _, change := range changes {
		if err := c.Delete(ctx, change.ID, change.UID); err != nil {
			left = append(left, change.ID)
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
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
