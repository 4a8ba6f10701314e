package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/render"
)

// Published reads from a cluster what a later rendering goes on from: the fabric, the
// cluster's sealed keys and the agents' image, at their paths of a rendered tree. So
// keys that need no change are not sealed again, agents are not replaced because another
// version of Hawser renders, and no reconciler is needed.
func (c *Client) Published(ctx context.Context) (render.Tree, error) {
	tree := render.Tree{}
	keys := ID{Version: "v1", Kind: kindSecret, Namespace: render.Namespace, Name: render.KeysSecret}
	if _, err := c.copyInto(ctx, tree, keys, render.ClusterDir(c.Name)+"/keys.yaml"); err != nil {
		return nil, err
	}
	if err := c.copyImage(ctx, tree); err != nil {
		return nil, err
	}
	return tree, c.copyFabric(ctx, tree)
}

// PublishedIn reads what the clusters have, as Published does of one. What cannot be read
// is told when it comes to applying there. The error is that clusters run different images
// of the agent, so that there is none to keep; the tree is there nevertheless.
func PublishedIn(ctx context.Context, clusters []*Client) (render.Tree, error) {
	trees := make([]render.Tree, len(clusters))
	ForEach(clusters, func(i int, c *Client) {
		if tree, err := c.Published(ctx); err == nil {
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
func (c *Client) copyImage(ctx context.Context, tree render.Tree) error {
	id := ID{Group: "apps", Version: "v1", Kind: kindDaemonSet, Namespace: render.Namespace, Name: render.GatewayName}
	o, err := c.get(ctx, id)
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

// copyFabric copies all parts of the fabric.
func (c *Client) copyFabric(ctx context.Context, tree render.Tree) error {
	for i := 0; ; i++ {
		id, file := fabricPart(i), "base/fabric.yaml"
		if i > 0 {
			file = "base/fabric-" + strconv.Itoa(i) + ".yaml"
		}
		if found, err := c.copyInto(ctx, tree, id, file); err != nil || !found {
			return err
		}
	}
}

// fabricPart names the ConfigMaps that hold the fabric.
func fabricPart(i int) ID {
	id := ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: render.FabricConfigMap}
	if i > 0 {
		id.Name += "-" + strconv.Itoa(i)
	}
	return id
}

func (c *Client) copyInto(ctx context.Context, tree render.Tree, id ID, file string) (found bool, err error) {
	o, err := c.get(ctx, id)
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

// marks gives the labels and annotations of an object in one map.
func marks(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	maps.Copy(out, o.GetLabels())
	maps.Copy(out, o.GetAnnotations())
	return out
}
