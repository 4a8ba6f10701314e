package clusterstatus

import (
	"cmp"
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// nodeLocal is the name of the ConfigMap and of the DaemonSet of NodeLocal DNSCache.
const nodeLocal = "node-local-dns"

// checkNodeLocalDNS returns a problem if NodeLocal DNSCache does not forward the domain to the
// agents, unless the topology sets dns: none. tree contains the fabric.
func checkNodeLocalDNS(ctx context.Context, c *kubeclient.Client, tree render.Tree) (string, error) {
	cache, err := cache(ctx, c)
	if err != nil || cache == nil {
		return "", err
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		return "", nil // other checks report it
	}
	member := f.Cluster(c.Name)
	if member == nil || cmp.Or(member.ClusterDNS, fabric.DNSNone) == fabric.DNSNone {
		return "", nil
	}
	text, _, _ := unstructured.NestedString(cache.Object, "data", "Corefile")
	forward := corefile.ForwardOf(f, member)
	if !forward.Valid() || !corefile.BypassesForward(text, f.Domain) {
		return "", nil
	}
	fix := fmt.Sprintf("add a server block for %s with forward . %s and the bind addresses of the other blocks", f.Domain, forward.Servers[0])
	if cache.GetName() == nodeLocal {
		fix = "set clusters[].dns: node-local in the topology, or " + fix
	}
	return fmt.Sprintf("NodeLocal DNSCache does not forward %s to the agents, so pods that use it do not resolve names of the clusterset: "+
		"its Corefile is in ConfigMap kube-system/%s; %s", f.Domain, cache.GetName(), fix), nil
}

// cache returns the ConfigMap of NodeLocal DNSCache. It finds it by name, or by the volumes of the
// DaemonSet. It returns nil if the ConfigMap does not exist or access is forbidden.
func cache(ctx context.Context, c *kubeclient.Client) (*unstructured.Unstructured, error) {
	settings := kubeclient.ID{Version: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: nodeLocal}
	found, err := c.Get(ctx, settings)
	if found != nil || err != nil {
		return found, unlessForbidden(err)
	}
	daemons, err := c.Get(ctx, kubeclient.ID{Group: "apps", Version: "v1", Kind: "DaemonSet", Namespace: "kube-system", Name: nodeLocal})
	if err != nil || daemons == nil {
		return nil, unlessForbidden(err)
	}
	volumes, _, _ := unstructured.NestedSlice(daemons.Object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if settings.Name, _, _ = unstructured.NestedString(volume, "configMap", "name"); settings.Name == "" {
			continue
		}
		found, err := c.Get(ctx, settings)
		if err != nil {
			return nil, unlessForbidden(err)
		}
		if found != nil {
			if _, exists, _ := unstructured.NestedString(found.Object, "data", "Corefile"); exists {
				return found, nil
			}
		}
	}
	return nil, nil
}

// unlessForbidden returns err, or nil if access was forbidden.
func unlessForbidden(err error) error {
	if kerrors.IsForbidden(err) {
		return nil
	}
	return err
}
