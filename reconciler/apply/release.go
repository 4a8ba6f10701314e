package apply

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// releaseAnnotation is set on the agents' pods: a pod that changes has its
// ConfigMaps read again at once, instead of within a minute or more.
const releaseAnnotation = "hawser.dev/release"

// decommissionFabric gives the fabric by which agents take everything down: what is in
// force, without clusters and exports. The domains stay, by which the agents find
// what they wrote into the cluster's DNS.
func decommissionFabric(before *fabric.Fabric, clusterset string) (packed []byte, digest string, err error) {
	f := fabric.Fabric{Name: clusterset}
	if before != nil {
		f = *before
	}
	f.APIVersion = fabric.APIVersion
	f.Clusters, f.Exports, f.Decommission = []fabric.Cluster{}, nil, true
	f.Links, f.Shape, f.DynamicExports = nil, fabric.Shape{}, nil
	raw, err := fabric.Encode(&f)
	if err != nil {
		return nil, "", err
	}
	packed, err = fabric.Compress(raw)
	return packed, fabric.Digest(raw), err
}

// decommission has the agents of a cluster take down what they made on their nodes and
// wrote into the API, and waits until each says that it has. It can be repeated.
func (c *Client) decommission(ctx context.Context, r *Removal) error {
	tree, err := c.Published(ctx)
	if err != nil {
		return err
	}
	before, err := render.FabricOf(tree)
	if err != nil {
		before = nil // agents that never had one made nothing
	}
	packed, digest, err := decommissionFabric(before, r.have.Clusterset)
	if err != nil {
		return err
	}
	clusterset := r.have.Clusterset
	if clusterset == "" && before != nil { // Flux or Argo CD applied it
		clusterset = before.Name
	}
	proof, err := c.signDecommission(ctx, cmp.Or(clusterset, "none"), packed)
	if err != nil {
		return err
	}
	if err := c.publishFarewell(ctx, packed, proof); err != nil {
		return err
	}
	list, err := c.agents(ctx)
	if err != nil {
		return err
	}
	at, err := c.at(pods(), render.Namespace)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{releaseAnnotation: digest}}})
	if err != nil {
		return err
	}
	for _, p := range list {
		// It only saves time: a pod that ended meanwhile is no trouble.
		_, _ = at.Patch(ctx, p.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	}
	return c.waitDecommissioned(ctx, r, digest)
}

// publishFarewell replaces the fabric. Agents prefer it to parts of a larger one
// that may still be there.
func (c *Client) publishFarewell(ctx context.Context, packed, proof []byte) error {
	id := fabricPart(0)
	o, err := c.get(ctx, id)
	if err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("there is no %s to tell the agents by", id)
	}
	o.Object["data"] = map[string]any{render.FabricProofKey: string(proof)}
	o.Object["binaryData"] = map[string]any{render.FabricKey: base64.StdEncoding.EncodeToString(packed)}
	at, err := c.at(id.kind(), id.Namespace)
	if err == nil {
		_, err = at.Update(ctx, o, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", id, err)
	}
	return nil
}

func pods() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// agents gives the agents' pods that run.
func (c *Client) agents(ctx context.Context) ([]unstructured.Unstructured, error) {
	items, err := c.list(ctx, pods(), render.Namespace, "")
	return slices.DeleteFunc(items, func(p unstructured.Unstructured) bool {
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		return phase == "Succeeded" || phase == "Failed" || isPage(&p)
	}), err
}

// isPage tells the pod of the web page from those of agents.
func isPage(p *unstructured.Unstructured) bool {
	return p.GetLabels()["app.kubernetes.io/name"] == render.UIName
}

// waitDecommissioned waits until every agent says that nothing is left of it.
func (c *Client) waitDecommissioned(ctx context.Context, r *Removal, digest string) error {
	last := ""
	err := poll(ctx, r.Timeout, func(ctx context.Context) (bool, error) {
		waits, err := c.unreleased(ctx, digest)
		if err != nil {
			return false, nil // an API server that restarts meanwhile is no reason to give up
		}
		if text := "waiting for " + strings.Join(waits, "; "); text != last && len(waits) > 0 {
			r.say(text)
			last = text
		}
		return len(waits) == 0, nil
	})
	if errors.Is(err, errWait) {
		return fmt.Errorf("after %s still %s (what they made stays on those nodes: hawser-agent cleanup there takes it away; --force goes on without them)",
			r.Timeout, last)
	}
	return err
}

// unreleased says who still holds something.
func (c *Client) unreleased(ctx context.Context, digest string) ([]string, error) {
	list, err := c.agents(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var waits []string
	for _, p := range list {
		name, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
		switch {
		case name == "":
			// It was never on a node.
		case i < 0:
			waits = append(waits, fmt.Sprintf("node %s, whose agent has not reported", name))
		case nodes[i].Fabric != digest:
			waits = append(waits, fmt.Sprintf("node %s, which does not know yet", name))
		case nodes[i].Ready != "True":
			waits = append(waits, strings.TrimSuffix(fmt.Sprintf("node %s: %s", name, nodes[i].LastError), ": "))
		}
	}
	slices.Sort(waits)
	return slices.Compact(waits), nil
}
