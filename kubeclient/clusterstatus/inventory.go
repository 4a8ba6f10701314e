package clusterstatus

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// InventoryConfigMap is the name of the ConfigMap in hawser-system that records the last apply: the
// clusterset, the cluster, the fabric's digest, and one object per line.
const InventoryConfigMap = "hawser-inventory"

// Inventory is the record of the last apply.
type Inventory struct {
	Clusterset string
	Cluster    string
	Digest     string // digest of the fabric
	Objects    []kubeclient.ID
}

// ReadInventory reads the inventory. It is empty if nothing was applied yet.
func ReadInventory(ctx context.Context, c *kubeclient.Client) (Inventory, error) {
	o, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: InventoryConfigMap})
	if err != nil || o == nil {
		return Inventory{}, err
	}
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return Inventory{}, err
	}
	out := Inventory{Clusterset: data["clusterset"], Cluster: data["cluster"], Digest: data["digest"]}
	for line := range strings.Lines(data["objects"]) {
		id, err := kubeclient.ParseLine(strings.TrimSpace(line))
		if err != nil {
			return out, err
		}
		out.Objects = append(out.Objects, id)
	}
	return out, nil
}
