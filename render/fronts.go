package render

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// addGatewayServices writes the Services of a cluster's gateways that are found by one. They have no
// selector: agents of gateways are alike, and the gateway that writes into the API says by an
// EndpointSlice which node is meant. A load balancer leads to that node alone, so that who
// comes is seen as it is; by a port of the nodes any of them leads to it, at the number that
// the gateway itself has. A cluster without links has none, as an API server refuses Services
// without ports.
func addGatewayServices(tree Tree, c *fabric.Cluster, ports *firewall.Calculator) {
	var out bytes.Buffer
	openings := ports.Links(c.Name, nil)
	for i := range c.Gateways {
		g := &c.Gateways[i]
		numbers := frontPorts(openings, g)
		if len(numbers) == 0 {
			continue
		}
		sort, policy, pinned := "LoadBalancer", "Local", false
		if slices.Contains(g.Endpoints, fabric.SourceNodePort) {
			sort, policy, pinned = "NodePort", "Cluster", true
		}
		_, _ = fmt.Fprintf(&out, `apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: %s
  labels: {%s}
spec:
  type: %s
  externalTrafficPolicy: %s
  ports:
`, fabric.ServiceOf(g.Name), Namespace, partOf, sort, policy)
		for _, port := range numbers {
			at := ""
			if pinned {
				at = fmt.Sprintf(", nodePort: %d", port)
			}
			_, _ = fmt.Fprintf(&out, "  - {name: udp-%[1]d, protocol: UDP, port: %[1]d, targetPort: %[1]d%[2]s}\n", port, at)
		}
		out.WriteString("---\n")
	}
	if out.Len() > 0 {
		tree[path.Join(ClusterDir(c.Name), "fronts.yaml")] = bytes.TrimSuffix(out.Bytes(), []byte("---\n"))
	}
}
