package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// restoreDNS takes our part out of the cluster's own DNS, where no gateway was
// left that did. Pods would otherwise wait for name servers that are gone.
func (c *Client) restoreDNS(ctx context.Context, r *Removal) error {
	forwards := c.forwards(ctx)
	places := []struct {
		name, key string
		without   func(string) (string, error)
	}{
		{"coredns", "Corefile", corefile.Remove},
		{"node-local-dns", "Corefile", corefile.Remove},
		{"coredns-custom", "hawser.server", func(string) (string, error) { return "", nil }},
		{"kube-dns", "stubDomains", func(text string) (string, error) { return withoutStubs(text, forwards) }},
	}
	var errs []error
	for _, place := range places {
		id := ID{Version: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: place.name}
		o, err := c.get(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if o == nil {
			continue
		}
		if err := c.restore(ctx, o, place.key, place.without); err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", id, place.key, err))
		}
	}
	err := errors.Join(errs...)
	if err != nil && r.Force {
		r.say("going on: " + ErrorText(err))
		return nil
	}
	return err
}

// restore writes a text without our part, unless somebody changes it meanwhile.
func (c *Client) restore(ctx context.Context, o *unstructured.Unstructured, key string, without func(string) (string, error)) error {
	text, _, _ := unstructured.NestedString(o.Object, "data", key)
	if text == "" {
		return nil
	}
	rest, err := without(text)
	if err != nil || rest == text {
		return err
	}
	var value any = rest
	if rest == "" && key != "Corefile" {
		value = nil // the key was not there before us
	}
	return c.merge(ctx, o, map[string]any{
		"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()},
		"data":     map[string]any{key: value},
	})
}

// forwards gives what agents may have written as stub domains: by the fabric that
// is in force, or by the one that took it down, which has the domains still.
func (c *Client) forwards(ctx context.Context) []corefile.Forward {
	tree, err := c.Published(ctx)
	if err != nil {
		return nil
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		return nil // without a fabric agents wrote nothing
	}
	return forwardsOf(f)
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

// nodeLocal is the name of NodeLocal DNSCache's ConfigMap and of its DaemonSet.
const nodeLocal = "node-local-dns"

// checkNodeLocalDNS reports a NodeLocal DNSCache that does not lead the domain to the agents,
// unless the topology leaves the cluster's DNS to somebody else.
func (c *Client) checkNodeLocalDNS(ctx context.Context) (string, error) {
	cache, err := c.cache(ctx)
	if err != nil || cache == nil {
		return "", err
	}
	tree := render.Tree{}
	if err := c.copyFabric(ctx, tree); err != nil {
		return "", err
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		return "", nil // it is told elsewhere
	}
	own := f.Cluster(c.Name)
	if own == nil || cmp.Or(own.ClusterDNS, fabric.DNSNone) == fabric.DNSNone {
		return "", nil
	}
	text, _, _ := unstructured.NestedString(cache.Object, "data", "Corefile")
	forward := corefile.ForwardOf(f, own)
	if !forward.Valid() || !corefile.BypassesForward(text, f.Domain) {
		return "", nil
	}
	do := fmt.Sprintf("give it a server block for %s with forward . %s and the bind of the others", f.Domain, forward.Servers[0])
	if cache.GetName() == nodeLocal {
		do = "say clusters[].dns: node-local in the topology, or " + do
	}
	return fmt.Sprintf("NodeLocal DNSCache does not lead %s to the agents, so pods that ask it do not resolve names of the clusterset: "+
		"its Corefile is in ConfigMap kube-system/%s; %s", f.Domain, cache.GetName(), do), nil
}

// cache finds the ConfigMap of NodeLocal DNSCache, by its name or by its DaemonSet's
// volumes; nil = there is none, or nobody may look.
func (c *Client) cache(ctx context.Context) (*unstructured.Unstructured, error) {
	settings := ID{Version: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: nodeLocal}
	found, err := c.get(ctx, settings)
	if found != nil || err != nil {
		return found, unlessForbidden(err)
	}
	daemons, err := c.get(ctx, ID{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: "kube-system", Name: nodeLocal})
	if err != nil || daemons == nil {
		return nil, unlessForbidden(err)
	}
	volumes, _, _ := unstructured.NestedSlice(daemons.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if settings.Name, _, _ = unstructured.NestedString(volume, "configMap", "name"); settings.Name == "" {
			continue
		}
		found, err := c.get(ctx, settings)
		if err != nil {
			return nil, unlessForbidden(err)
		}
		if found != nil {
			if _, is, _ := unstructured.NestedString(found.Object, "data", "Corefile"); is {
				return found, nil
			}
		}
	}
	return nil, nil
}

// unlessForbidden leaves out that somebody may not look.
func unlessForbidden(err error) error {
	if kerrors.IsForbidden(err) {
		return nil
	}
	return err
}
