package clusterstatus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// Published returns the objects of a cluster that the next rendering reuses, at their paths in a
// rendered tree: the fabric, the cluster's sealed keys and the agents' image. Then unchanged keys
// are not sealed again, and a different version of Hawser does not restart the agents.
func Published(ctx context.Context, c *kubeclient.Client) (render.Tree, error) {
	tree := render.Tree{}
	keys := kubeclient.ID{Version: "v1", Kind: kubeclient.KindSecret, Namespace: render.Namespace, Name: render.KeysSecret}
	if _, err := copyInto(ctx, c, tree, keys, render.ClusterDir(c.Name)+"/keys.yaml"); err != nil {
		return nil, err
	}
	if err := copyImage(ctx, c, tree); err != nil {
		return nil, err
	}
	return tree, ReadFabric(ctx, c, tree)
}

// PublishedIn merges the results of Published of several clusters. It skips clusters that it cannot
// read. It returns the tree and an error if the clusters run different images of the agent.
func PublishedIn(ctx context.Context, clusters []*kubeclient.Client) (render.Tree, error) {
	trees := make([]render.Tree, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		if tree, err := Published(ctx, c); err == nil {
			trees[i] = tree
		}
	})
	out := render.Tree{}
	images := map[string]string{} // first cluster with each image
	for i, tree := range trees {
		if image := render.ImageOf(tree); image != "" && images[image] == "" {
			images[image] = clusters[i].Name
		}
		first := out["base/fabric.yaml"] == nil
		for name, raw := range tree {
			if first || !strings.HasPrefix(name, "base/") || name == render.GatewayFile {
				out[name] = raw
			}
		}
	}
	if len(images) < 2 {
		return out, nil
	}
	var texts []string
	for _, image := range slices.Sorted(maps.Keys(images)) {
		texts = append(texts, images[image]+" runs "+image)
	}
	return out, fmt.Errorf("clusters run different images of the agent (%s): set spec.agent.image or --image to the image for all clusters",
		strings.Join(texts, ", "))
}

// copyImage copies the fields of the gateways' DaemonSet that render.ImageOf reads.
func copyImage(ctx context.Context, c *kubeclient.Client, tree render.Tree) error {
	id := kubeclient.ID{Group: "apps", Version: "v1", Kind: kubeclient.KindDaemonSet, Namespace: render.Namespace, Name: render.GatewayName}
	o, err := c.Get(ctx, id)
	if err != nil || o == nil {
		return err
	}
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return fmt.Errorf("read %s: %w", id, err)
	}
	minimal := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}}
	if tree[render.GatewayFile], err = yaml.Marshal(minimal); err != nil {
		return fmt.Errorf("read %s: %w", id, err)
	}
	return nil
}

// ReadFabric adds all parts of the fabric to the tree.
func ReadFabric(ctx context.Context, c *kubeclient.Client, tree render.Tree) error {
	for i := 0; ; i++ {
		id, file := FabricPart(i), "base/fabric.yaml"
		if i > 0 {
			file = "base/fabric-" + strconv.Itoa(i) + ".yaml"
		}
		if found, err := copyInto(ctx, c, tree, id, file); err != nil || !found {
			return err
		}
	}
}

// FabricPart returns the ID of the ConfigMap with the ith part of the fabric.
func FabricPart(i int) kubeclient.ID {
	id := kubeclient.ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: render.FabricConfigMap}
	if i > 0 {
		id.Name += "-" + strconv.Itoa(i)
	}
	return id
}

func copyInto(ctx context.Context, c *kubeclient.Client, tree render.Tree, id kubeclient.ID, file string) (found bool, err error) {
	o, err := c.Get(ctx, id)
	if err != nil || o == nil {
		return false, err
	}
	minimal := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}
	for _, field := range []string{"data", "binaryData"} {
		if v, ok := o.Object[field]; ok {
			minimal[field] = v
		}
	}
	digest := o.GetAnnotations()[render.DigestAnnotation]
	minimal["metadata"] = map[string]any{"name": id.Name, "annotations": map[string]any{render.DigestAnnotation: digest}}
	if tree[file], err = yaml.Marshal(minimal); err != nil {
		return false, fmt.Errorf("read %s: %w", id, err)
	}
	return true, nil
}
