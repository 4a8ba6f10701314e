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

// Published reads from a cluster what a later rendering goes on from: the fabric, the
// cluster's sealed keys and the agents' image, at their paths of a rendered tree. So
// keys that need no change are not sealed again, agents are not replaced because another
// version of Hawser renders, and no reconciler is needed.
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

// PublishedIn reads what the clusters have, as Published does of one. What cannot be read
// is told when it comes to applying there. The error is that clusters run different images
// of the agent, so that there is none to keep; the tree is there nevertheless.
func PublishedIn(ctx context.Context, clusters []*kubeclient.Client) (render.Tree, error) {
	trees := make([]render.Tree, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		if tree, err := Published(ctx, c); err == nil {
			trees[i] = tree
		}
	})
	out := render.Tree{}
	images := map[string]string{} // the first cluster that has each
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
	return out, fmt.Errorf("clusters run different images of the agent (%s): name the one for all in spec.agent.image, or with --image",
		strings.Join(texts, ", "))
}

// copyImage copies of the gateways' DaemonSet what render.ImageOf reads.
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
	plain := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}}
	if tree[render.GatewayFile], err = yaml.Marshal(plain); err != nil {
		return fmt.Errorf("read %s: %w", id, err)
	}
	return nil
}

// ReadFabric copies all parts of the fabric.
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

// FabricPart names the ConfigMaps that hold the fabric.
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
	plain := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}
	for _, field := range []string{"data", "binaryData"} {
		if v, ok := o.Object[field]; ok {
			plain[field] = v
		}
	}
	digest := o.GetAnnotations()[render.DigestAnnotation]
	plain["metadata"] = map[string]any{"name": id.Name, "annotations": map[string]any{render.DigestAnnotation: digest}}
	if tree[file], err = yaml.Marshal(plain); err != nil {
		return false, fmt.Errorf("read %s: %w", id, err)
	}
	return true, nil
}
