package uninstall

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/trust"
)

// releaseAnnotation is set on the pods of the agents. After a change of a pod, the kubelet reads
// its ConfigMaps at once, instead of after a minute or more.
const releaseAnnotation = "hawser.dev/release"

// decommissionFabric returns the fabric that makes agents remove all their objects: the current
// fabric without clusters and exports. It keeps the domains, by which agents find their entries in
// the cluster's DNS.
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

// decommission makes the agents of a cluster remove their objects from nodes and API, and waits
// until each agent reports that it is done. It can be repeated.
func decommission(ctx context.Context, c *kubeclient.Client, r *Options) error {
	tree, err := clusterstatus.Published(ctx, c)
	if err != nil {
		return err
	}
	before, err := render.FabricOf(tree)
	if err != nil {
		before = nil // agents without a fabric created nothing
	}
	packed, digest, err := decommissionFabric(before, r.have.Clusterset)
	if err != nil {
		return err
	}
	clusterset := r.have.Clusterset
	if clusterset == "" && before != nil { // Flux or Argo CD applied it
		clusterset = before.Name
	}
	proof, err := signDecommission(ctx, c, cmp.Or(clusterset, "none"), packed)
	if err != nil {
		return err
	}
	if err := publishDecommission(ctx, c, packed, proof); err != nil {
		return err
	}
	list, err := c.AgentPods(ctx)
	if err != nil {
		return err
	}
	resource, err := c.Resource(kubeclient.PodKind(), render.Namespace)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{releaseAnnotation: digest}}})
	if err != nil {
		return err
	}
	for _, p := range list {
		// This only saves time, so ignore pods that terminated meanwhile.
		_, _ = resource.Patch(ctx, p.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: kubeclient.FieldManager})
	}
	return waitDecommissioned(ctx, c, r, digest)
}

// publishDecommission replaces the fabric. Agents prefer it to remaining parts of a larger fabric.
func publishDecommission(ctx context.Context, c *kubeclient.Client, packed, proof []byte) error {
	id := clusterstatus.FabricPart(0)
	o, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	if o == nil {
		return fmt.Errorf("%s not found: the agents cannot be decommissioned", id)
	}
	o.Object["data"] = map[string]any{render.FabricProofKey: string(proof)}
	o.Object["binaryData"] = map[string]any{render.FabricKey: base64.StdEncoding.EncodeToString(packed)}
	client, err := c.Resource(id.GroupVersionKind(), id.Namespace)
	if err == nil {
		_, err = client.Update(ctx, o, metav1.UpdateOptions{FieldManager: kubeclient.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", id, err)
	}
	return nil
}

// waitDecommissioned waits until every agent reports that it removed everything.
func waitDecommissioned(ctx context.Context, c *kubeclient.Client, r *Options, digest string) error {
	last := ""
	err := kubeclient.Poll(ctx, r.Timeout, func(ctx context.Context) (bool, error) {
		pending, err := pendingNodes(ctx, c, digest)
		if err != nil {
			return false, nil // ignore errors: the API server may restart meanwhile
		}
		if text := "waiting for " + strings.Join(pending, "; "); text != last && len(pending) > 0 {
			r.log(text)
			last = text
		}
		return len(pending) == 0, nil
	})
	if errors.Is(err, kubeclient.ErrTimeout) {
		return fmt.Errorf("after %s still %s (their objects stay on those nodes: run hawser-agent cleanup there, or continue without them with --force)",
			r.Timeout, last)
	}
	return err
}

// pendingNodes returns the nodes whose agents have not removed everything.
func pendingNodes(ctx context.Context, c *kubeclient.Client, digest string) ([]string, error) {
	list, err := c.AgentPods(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := clusterstatus.Nodes(ctx, c)
	if err != nil {
		return nil, err
	}
	var pending []string
	for _, p := range list {
		name, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
		i := slices.IndexFunc(nodes, func(n health.Node) bool { return n.Name == name })
		switch {
		case name == "":
			// The agent never ran on a node.
		case i < 0:
			pending = append(pending, fmt.Sprintf("node %s, whose agent has not reported", name))
		case nodes[i].Fabric != digest:
			pending = append(pending, fmt.Sprintf("node %s, which does not know yet", name))
		case nodes[i].Ready != "True":
			pending = append(pending, strings.TrimSuffix(fmt.Sprintf("node %s: %s", name, nodes[i].Reason), ": "))
		}
	}
	slices.Sort(pending)
	return slices.Compact(pending), nil
}

// signDecommission signs the decommission fabric with a new key, pins that key as signer, and
// returns the proof. So the removal of a cluster requires write access to its Secrets, but not the
// root key.
func signDecommission(ctx context.Context, c *kubeclient.Client, clusterset string, packed []byte) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	signed, err := trust.Sign(trust.Fabric, trust.Statement{Clusterset: clusterset, Revision: 1, SHA256: trust.Hash(packed)}, signer)
	if err != nil {
		return nil, err
	}
	if _, err := c.Apply(ctx, apply.PinSecret(trust.PinFile(clusterset, "*", []string{trust.Line(signer.PublicKey())})), false); err != nil {
		return nil, err
	}
	return json.Marshal(trust.Proof{Signed: signed})
}
