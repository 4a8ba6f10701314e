package render

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// placementDir is the folder of a cluster with the patches that place its agents on nodes.
const placementDir = "placement"

// addPlacement places the gateways' agent on the nodes of the cluster's gateways and on their
// candidates, and the other agent on all other nodes. Keys are mounted on the former alone, so no
// other node can read them.
func addPlacement(tree Tree, c *schema.Cluster) {
	var nodes []string
	var picked [][]string // labels as expressions, by selector
	for _, g := range c.Gateways {
		if len(g.NodeSelector) == 0 {
			nodes = append(nodes, g.Node)
			continue
		}
		var all []string
		for key, value := range g.NodeSelector {
			all = append(all, fmt.Sprintf("{key: %s, operator: %%s, values: [%s]}", scalar(key), strings.ReplaceAll(scalar(value), "%", "%%")))
		}
		slices.Sort(all)
		if !slices.ContainsFunc(picked, func(have []string) bool { return slices.Equal(have, all) }) {
			picked = append(picked, all)
		}
	}
	nodes = sorted(nodes)
	slices.SortFunc(picked, slices.Compare[[]string])
	// A field has one value: terms are joined by or, fields and labels of a term by and.
	var on, off, fields bytes.Buffer
	for _, n := range nodes {
		_, _ = fmt.Fprintf(&on, "            - matchFields:\n              - {key: metadata.name, operator: In, values: [%s]}\n", scalar(n))
		_, _ = fmt.Fprintf(&fields, "              - {key: metadata.name, operator: NotIn, values: [%s]}\n", scalar(n))
	}
	for _, all := range picked {
		on.WriteString("            - matchExpressions:\n")
		for _, label := range all {
			_, _ = fmt.Fprintf(&on, "              - "+label+"\n", "In")
		}
	}
	for _, lacking := range lacking(picked) {
		term := "            - "
		if fields.Len() > 0 {
			off.WriteString(term + "matchFields:\n" + fields.String())
			term = "              "
		}
		if len(lacking) > 0 {
			off.WriteString(term + "matchExpressions:\n")
		}
		for _, label := range lacking {
			_, _ = fmt.Fprintf(&off, "              - "+label+"\n", "NotIn")
		}
	}
	dir := path.Join(ClusterDir(c.Name), placementDir)
	tree[path.Join(dir, "gateway.yaml")] = placement(GatewayName, on.String())
	tree[path.Join(dir, "agent.yaml")] = placement(AgentName, off.String())
}

// lacking returns every combination of one label from each selector. A node without all labels of
// some combination matches no selector.
func lacking(selectors [][]string) [][]string {
	ways := [][]string{nil}
	for _, all := range selectors {
		var next [][]string
		for _, way := range ways {
			for _, label := range all {
				next = append(next, append(slices.Clone(way), label))
			}
		}
		ways = next
	}
	return ways
}

func placement(name, terms string) []byte {
	return fmt.Appendf(nil, `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %s, namespace: %s}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
%s`, name, Namespace, terms)
}
