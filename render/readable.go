package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/schema"
)

// Files at the top of the tree, for people and for the plan. No kustomization refers to them, so no
// cluster applies them and no limit of Kubernetes applies.
const (
	// FabricText is the fabric as text. The directory base contains the same fabric compressed.
	FabricText = "fabric.json"
	// TopologyText is the topology with its defaults and without comments.
	TopologyText = "topology.json"
	// MapPicture and MapText are the map of the clusterset, as SVG and as Markdown for code
	// hosts. They contain no keys: fabrics with the same map have equal files.
	MapPicture = "map.svg"
	MapText    = "map.md"
)

// Topology returns the content of TopologyText for a topology with its defaults. Topologies with
// equal content have the same meaning.
func Topology(top *schema.ClusterSet) ([]byte, error) {
	raw, err := json.MarshalIndent(normalized(top), "", " ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", TopologyText, err)
	}
	return append(raw, '\n'), nil
}

// normalized returns a copy of the topology. It sorts the lists whose order has no meaning.
func normalized(top *schema.ClusterSet) *schema.ClusterSet {
	out := *top
	out.Spec.Clusters = slices.Clone(top.Spec.Clusters)
	for i := range out.Spec.Clusters {
		c := &out.Spec.Clusters[i]
		c.PodCIDRs, c.ServiceCIDRs = sortedFunc(c.PodCIDRs, netip.Prefix.Compare), sortedFunc(c.ServiceCIDRs, netip.Prefix.Compare)
		c.Gateways = sortedFunc(c.Gateways, func(x, y schema.Gateway) int { return cmp.Compare(x.Name, y.Name) })
		c.Egress = sortedFunc(c.Egress, func(x, y schema.EgressRule) int { return cmp.Compare(x.Name, y.Name) })
	}
	slices.SortFunc(out.Spec.Clusters, func(x, y schema.Cluster) int { return cmp.Compare(x.Name, y.Name) })
	out.Spec.Exports = sortedFunc(top.Spec.Exports, func(x, y schema.Export) int {
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
		sortedUI := *ui
		sortedUI.Clusters, sortedUI.Hosts = sorted(ui.Clusters), sorted(ui.Hosts)
		out.Spec.UI = &sortedUI
	}
	out.Spec.ExtraDomains = sorted(out.Spec.ExtraDomains)
	out.Spec.Connectivity.Hubs = sorted(out.Spec.Connectivity.Hubs)
	return &out
}
