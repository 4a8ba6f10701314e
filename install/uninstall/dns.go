package uninstall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// restoreDNS removes Hawser's entries from the cluster's own DNS, if no gateway was left to do so.
// Otherwise pods would wait for name servers that no longer exist.
func restoreDNS(ctx context.Context, c *kubeclient.Client, r *Options) error {
	var errs []error
	forwards, err := fabricForwards(ctx, c)
	if err != nil {
		errs = append(errs, fmt.Errorf("find the stub domains of Hawser: %w", err))
	}
	configMaps := []struct {
		name, key string
		remove    func(string) (string, error)
	}{
		{"coredns", "Corefile", corefile.Remove},
		{"node-local-dns", "Corefile", corefile.Remove},
		{"coredns-custom", "hawser.server", func(string) (string, error) { return "", nil }},
		{"kube-dns", "stubDomains", func(text string) (string, error) { return withoutStubs(text, forwards) }},
	}
	for _, configMap := range configMaps {
		id := kubeclient.ID{Version: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: configMap.name}
		o, err := c.Get(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if o == nil {
			continue
		}
		if err := restore(ctx, c, o, configMap.key, configMap.remove); err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", id, configMap.key, err))
		}
	}
	err = errors.Join(errs...)
	if err != nil && r.Force {
		r.log("continuing (--force): " + kubeclient.ErrorText(err))
		return nil
	}
	return err
}

// restore writes the text without Hawser's entries, unless the object changed since it was read.
func restore(ctx context.Context, c *kubeclient.Client, o *unstructured.Unstructured, key string, remove func(string) (string, error)) error {
	text, _, _ := unstructured.NestedString(o.Object, "data", key)
	if text == "" {
		return nil
	}
	rest, err := remove(text)
	if err != nil || rest == text {
		return err
	}
	var value any = rest
	if rest == "" && key != "Corefile" {
		value = nil // only Hawser used the key
	}
	return c.MergePatch(ctx, o, map[string]any{
		"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()},
		"data":     map[string]any{key: value},
	})
}

// fabricForwards returns the stub domains that agents may have written, according to the current
// fabric or the decommission fabric.
func fabricForwards(ctx context.Context, c *kubeclient.Client) ([]corefile.Forward, error) {
	tree := render.Tree{}
	if err := clusterstatus.ReadFabric(ctx, c, tree); err != nil {
		return nil, err
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		return nil, nil // without a fabric, agents wrote nothing
	}
	return forwardsOf(f), nil
}

func forwardsOf(f *fabric.Fabric) []corefile.Forward {
	var out []corefile.Forward
	for _, server := range f.DNS.Addresses() {
		forward := corefile.ForwardOf(f, &fabric.Cluster{})
		forward.Servers = []netip.Addr{server}
		out = append(out, forward)
	}
	return out
}

func withoutStubs(text string, forwards []corefile.Forward) (string, error) {
	for _, f := range forwards {
		rest, err := corefile.RemoveStub(text, f)
		if err != nil {
			return text, err
		}
		text = rest
	}
	return text, nil
}
