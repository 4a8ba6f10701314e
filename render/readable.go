package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/clustermap"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
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

// addMap draws the clusters and their links.
func addMap(tree Tree, f *fabric.Fabric) {
	m := clustermap.New(f)
	tree[MapPicture], tree[MapText] = []byte(m.SVG()), []byte(m.Markdown(MapPicture))
}

// addTopology writes what the topology says in a form that can be read, and compared line
// by line where somebody looks at the branch. addFabric does so for the fabric.
func addTopology(tree Tree, top *schema.ClusterSet) error {
	raw, err := Topology(top)
	if err != nil {
		return err
	}
	tree[TopologyText] = raw
	return nil
}

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
		c.Gateways, c.Egress = slices.Clone(c.Gateways), slices.Clone(c.Egress)
		slices.SortFunc(c.Gateways, func(x, y schema.Gateway) int { return cmp.Compare(x.Name, y.Name) })
		slices.SortFunc(c.Egress, func(x, y schema.EgressRule) int { return cmp.Compare(x.Name, y.Name) })
	}
	slices.SortFunc(out.Spec.Clusters, func(x, y schema.Cluster) int { return cmp.Compare(x.Name, y.Name) })
	out.Spec.Exports = slices.Clone(top.Spec.Exports)
	slices.SortFunc(out.Spec.Exports, func(x, y schema.Export) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for i := range out.Spec.Exports {
		e := &out.Spec.Exports[i]
		e.Clusters = inOrder(e.Clusters, strings.Compare)
		if e.Allow != nil {
			e.Allow = &schema.Allow{Clusters: inOrder(e.Allow.Clusters, strings.Compare)}
		}
	}
	if ui := top.Spec.UI; ui != nil {
		same := *ui
		same.Clusters, same.Hosts = inOrder(ui.Clusters, strings.Compare), inOrder(ui.Hosts, strings.Compare)
		out.Spec.UI = &same
	}
	out.Spec.ExtraDomains = inOrder(out.Spec.ExtraDomains, strings.Compare)
	out.Spec.Connectivity.Hubs = inOrder(out.Spec.Connectivity.Hubs, strings.Compare)
	return &out
}

func inOrder[T any](list []T, compare func(a, b T) int) []T {
	out := slices.Clone(list)
	slices.SortFunc(out, compare)
	return out
}
