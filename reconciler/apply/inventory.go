package apply

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/render"
)

// InventoryConfigMap, in the namespace hawser-system, holds what was applied: the
// clusterset, the cluster, the fabric's digest, and one object a line.
const InventoryConfigMap = "hawser-inventory"

// Inventory is what was applied last.
type Inventory struct {
	Clusterset string
	Cluster    string
	Digest     string // of the fabric
	Objects    []ID
}

func inventoryID() ID {
	return ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: InventoryConfigMap}
}

// inventory reads it; empty when nothing was applied yet.
func (c *Cluster) inventory(ctx context.Context) (Inventory, error) {
	o, err := c.get(ctx, inventoryID())
	if err != nil || o == nil {
		return Inventory{}, err
	}
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return Inventory{}, err
	}
	out := Inventory{Clusterset: data["clusterset"], Cluster: data["cluster"], Digest: data["digest"]}
	for line := range strings.Lines(data["objects"]) {
		id, err := readLine(strings.TrimSpace(line))
		if err != nil {
			return out, err
		}
		out.Objects = append(out.Objects, id)
	}
	return out, nil
}

// keep writes the inventory.
func (c *Cluster) keep(ctx context.Context, i Inventory) error {
	_, err := c.put(ctx, i.object(), false)
	return err
}

func (i Inventory) object() *unstructured.Unstructured {
	var lines strings.Builder
	objects := slices.SortedFunc(slices.Values(i.Objects), compareIDs)
	objects = slices.CompactFunc(objects, func(a, b ID) bool { return a.key() == b.key() })
	for _, id := range objects {
		lines.WriteString(id.line() + "\n")
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": InventoryConfigMap, "namespace": render.Namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "hawser", "app.kubernetes.io/managed-by": FieldManager},
		},
		"data": map[string]any{"clusterset": i.Clusterset, "cluster": i.Cluster, "digest": i.Digest, "objects": lines.String()},
	}}
}
