package render

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// placementDir is the directory of a cluster with the patches that place its agents on nodes.
const placementDir = "placement"

// addPlacement places the gateways' agent on the nodes and candidates of the cluster's gateways. It
// places the other agent on all other nodes. Only the gateways' agent mounts the keys, so no other
// node can read them.
func addPlacement(tree Tree, c *schema.Cluster) {
	var nodes []string
	var selectors [][]string // labels as expressions, by selector
	for _, g := range c.Gateways {
		if len(g.NodeSelector) == 0 {
			nodes = append(nodes, g.Node)
			continue
		}
		var labels []string
		for key, value := range g.NodeSelector {
			labels = append(labels, fmt.Sprintf("{key: %s, operator: %%s, values: [%s]}", scalar(key), strings.ReplaceAll(scalar(value), "%", "%%")))
		}
		slices.Sort(labels)
		equal := func(known []string) bool { return slices.Equal(known, labels) }
		if !slices.ContainsFunc(selectors, equal) {
			selectors = append(selectors, labels)
		}
	}
	nodes = sorted(nodes)
	slices.SortFunc(selectors, slices.Compare[[]string])
	// A matchFields entry has one value. Terms are ORed. Fields and labels of a term are ANDed.
	var gatewayTerms, agentTerms, notNodes bytes.Buffer
	for _, n := range nodes {
		_, _ = fmt.Fprintf(&gatewayTerms, "            - matchFields:\n              - {key: metadata.name, operator: In, values: [%s]}\n", scalar(n))
		_, _ = fmt.Fprintf(&notNodes, "              - {key: metadata.name, operator: NotIn, values: [%s]}\n", scalar(n))
	}
	for _, labels := range selectors {
		gatewayTerms.WriteString("            - matchExpressions:\n")
		for _, label := range labels {
			_, _ = fmt.Fprintf(&gatewayTerms, "              - "+label+"\n", "In")
		}
	}
	for _, lacking := range labelCombinations(selectors) {
		term := "            - "
		if notNodes.Len() > 0 {
			agentTerms.WriteString(term + "matchFields:\n" + notNodes.String())
			term = "              "
		}
		if len(lacking) > 0 {
			agentTerms.WriteString(term + "matchExpressions:\n")
		}
		for _, label := range lacking {
			_, _ = fmt.Fprintf(&agentTerms, "              - "+label+"\n", "NotIn")
		}
	}
	dir := path.Join(ClusterDir(c.Name), placementDir)
	tree[path.Join(dir, "gateway.yaml")] = placement(GatewayName, gatewayTerms.String())
	tree[path.Join(dir, "agent.yaml")] = placement(AgentName, agentTerms.String())
}

// labelCombinations returns every combination of one label from each selector. A node without the
// labels of one combination matches no selector.
func labelCombinations(selectors [][]string) [][]string {
	combinations := [][]string{nil}
	for _, labels := range selectors {
		var next [][]string
		for _, combination := range combinations {
			for _, label := range labels {
				next = append(next, append(slices.Clone(combination), label))
			}
		}
		combinations = next
	}
	return combinations
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
