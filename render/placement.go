package render

import (
	"bytes"
	"fmt"
	"path"

	"hawser.dev/hawser/schema"
)

// placementDir is the folder of a cluster with the patches that say where its
// agents run.
const placementDir = "placement"

// addPlacement puts the agent of gateways on the nodes of the cluster's gateways,
// and the other on all other nodes: keys are mounted, and so can be read, on
// gateways alone.
func addPlacement(tree Tree, c *schema.Cluster) {
	nodes := make([]string, 0, len(c.Gateways))
	for _, g := range c.Gateways {
		nodes = append(nodes, g.Node)
	}
	nodes = sorted(nodes)
	// A field takes one value: terms are joined by or, fields of a term by and.
	var on, off bytes.Buffer
	for _, n := range nodes {
		_, _ = fmt.Fprintf(&on, "            - matchFields:\n              - {key: metadata.name, operator: In, values: [%s]}\n", scalar(n))
		_, _ = fmt.Fprintf(&off, "              - {key: metadata.name, operator: NotIn, values: [%s]}\n", scalar(n))
	}
	dir := path.Join(ClusterDir(c.Name), placementDir)
	tree[path.Join(dir, "gateway.yaml")] = placement(GatewayName, on.String())
	tree[path.Join(dir, "agent.yaml")] = placement(AgentName, "            - matchFields:\n"+off.String())
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
