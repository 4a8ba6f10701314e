package apply

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
)

// maxShown is the maximum number of nodes in the text of a difference.
const maxShown = 3

// checkSameCluster returns an error if a cluster to which nothing was applied yet differs from the
// cluster of the topology. Then the context probably belongs to another cluster. Differences are:
// missing nodes of gateways, nodes with pods outside of podCIDRs, Services outside of serviceCIDRs,
// another cluster's name. Missing data is no difference: the cluster may have no nodes yet, or
// nodes without podCIDRs.
func checkSameCluster(ctx context.Context, c *kubeclient.Client, want Desired) error {
	differs, err := clusterNameDiffers(ctx, c, want)
	if err != nil {
		return err
	}
	nodes, err := nodesDiffer(ctx, c, want)
	if err != nil {
		return err
	}
	services, err := servicesDiffer(ctx, c, want)
	if err != nil {
		return err
	}
	if differs = slices.Concat(differs, nodes, services); len(differs) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was applied here yet, and it does not look like cluster %s of the topology: %s: is the context right? "+
		"If it is, fix the topology, or pass --allow-other-cluster", want.Cluster, strings.Join(differs, "; "))
}

// clusterNameDiffers returns a difference if the agents in the cluster belong to another cluster.
func clusterNameDiffers(ctx context.Context, c *kubeclient.Client, want Desired) ([]string, error) {
	o, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: render.IdentityConfigMap})
	if err != nil || o == nil {
		return nil, err
	}
	if name, _, _ := unstructured.NestedString(o.Object, "data", "cluster"); name != "" && name != want.Cluster {
		return []string{"its agents belong to cluster " + name}, nil
	}
	return nil, nil
}

func nodesDiffer(ctx context.Context, c *kubeclient.Client, want Desired) ([]string, error) {
	nodes, err := c.List(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "", "")
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	var names, missing, outside []string
	for i := range nodes {
		names = append(names, nodes[i].GetName())
		pods, _, _ := unstructured.NestedStringSlice(nodes[i].Object, "spec", "podCIDRs")
		for _, text := range pods {
			if p, err := netip.ParsePrefix(text); err == nil && !overlaps(p, want.member.PodCIDRs) {
				outside = append(outside, nodes[i].GetName()+" "+text)
			}
		}
	}
	for _, g := range want.member.Gateways {
		if g.Node != "" && !slices.Contains(names, g.Node) {
			missing = append(missing, g.Node)
		}
	}
	var out []string
	if len(missing) > 0 {
		out = append(out, fmt.Sprintf("gateways' nodes %s are not there, only %s", firstNames(missing), firstNames(names)))
	}
	if len(outside) > 0 {
		out = append(out, fmt.Sprintf("nodes have pods outside of podCIDRs %v: %s", want.member.PodCIDRs, firstNames(outside)))
	}
	return out, nil
}

func servicesDiffer(ctx context.Context, c *kubeclient.Client, want Desired) ([]string, error) {
	o, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: "Service", Namespace: "default", Name: "kubernetes"})
	if err != nil || o == nil {
		return nil, err
	}
	text, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP")
	a, err := netip.ParseAddr(text)
	if err != nil || overlaps(cidr.Single(a), want.member.ServiceCIDRs) {
		return nil, nil
	}
	return []string{fmt.Sprintf("the Service kubernetes has %s, outside of serviceCIDRs %v", a, want.member.ServiceCIDRs)}, nil
}

// overlaps reports whether a prefix overlaps any other prefix.
func overlaps(p netip.Prefix, others []netip.Prefix) bool {
	return slices.ContainsFunc(others, p.Overlaps)
}

func firstNames(names []string) string {
	slices.Sort(names)
	return humanize.FirstN(names, maxShown)
}
