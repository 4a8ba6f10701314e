package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema"
)

// Files for people and for the plan, at the top of the tree. No kustomization names them,
// so that no cluster gets them and no limit of Kubernetes is theirs.
const (
	// FabricText is the fabric that base holds compressed.
	FabricText = "fabric.json"
	// TopologyText is what the topology says, defaults filled in, without comments.
	TopologyText = "topology.json"
	// MapPicture and MapText are the map of the clusterset, as SVG and for forges to draw.
	// They have no keys in them: two renderings of what draws the same are the same.
	MapPicture = "map.svg"
	MapText    = "map.md"
)

// Topology gives what TopologyText of a tree is for a topology with its defaults: two
// trees with the same were rendered from topologies that mean the same.
func Topology(top *schema.ClusterSet) ([]byte, error) {
	raw, err := json.MarshalIndent(ordered(top), "", " ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", TopologyText, err)
	}
	return append(raw, '\n'), nil
}

// ordered gives the topology with everything in an order of its own whose order in the
// file means nothing.
func ordered(top *schema.ClusterSet) *schema.ClusterSet {
	out := *top
	out.Spec.Clusters = slices.Clone(top.Spec.Clusters)
	for i := range out.Spec.Clusters {
		c := &out.Spec.Clusters[i]
		c.PodCIDRs, c.ServiceCIDRs = inOrder(c.PodCIDRs, netip.Prefix.Compare), inOrder(c.ServiceCIDRs, netip.Prefix.Compare)
		c.Gateways = inOrder(c.Gateways, func(x, y schema.Gateway) int { return cmp.Compare(x.Name, y.Name) })
		c.Egress = inOrder(c.Egress, func(x, y schema.EgressRule) int { return cmp.Compare(x.Name, y.Name) })
	}
	slices.SortFunc(out.Spec.Clusters, func(x, y schema.Cluster) int { return cmp.Compare(x.Name, y.Name) })
	out.Spec.Exports = inOrder(top.Spec.Exports, func(x, y schema.Export) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for i := range out.Spec.Exports {
		e := &out.Spec.Exports[i]
		e.Clusters = sorted(e.Clusters)
		if e.Allow != nil {
			e.Allow = &schema.Allow{Clusters: sorted(e.Allow.Clusters)}
		}
	}
	if ui := top.Spec.UI; ui != nil {
		same := *ui
		same.Clusters, same.Hosts = sorted(ui.Clusters), sorted(ui.Hosts)
		out.Spec.UI = &same
	}
	out.Spec.ExtraDomains = sorted(out.Spec.ExtraDomains)
	out.Spec.Connectivity.Hubs = sorted(out.Spec.Connectivity.Hubs)
	return &out
}
