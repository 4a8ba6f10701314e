package render

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// addGatewayServices writes the Services of a cluster's gateways. A Service has no selector,
// because the agents of all gateways have equal labels. The gateway that writes to the API adds the
// node to an EndpointSlice. A load balancer forwards only to that node, which preserves client
// addresses. With NodePort every node forwards to that node, at the gateway's port. A cluster
// without links has no Services, because the API server rejects a Service without ports.
func addGatewayServices(tree Tree, c *fabric.Cluster, ports *firewall.Calculator) {
	var out bytes.Buffer
	openings := ports.Links(c.Name, nil)
	for i := range c.Gateways {
		g := &c.Gateways[i]
		numbers := servicePorts(openings, g)
		if len(numbers) == 0 {
			continue
		}
		serviceType, policy, fixedNodePort := "LoadBalancer", "Local", false
		if slices.Contains(g.Endpoints, fabric.SourceNodePort) {
			serviceType, policy, fixedNodePort = "NodePort", "Cluster", true
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
`, fabric.ServiceOf(g.Name), Namespace, partOf, serviceType, policy)
		for _, port := range numbers {
			nodePort := ""
			if fixedNodePort {
				nodePort = fmt.Sprintf(", nodePort: %d", port)
			}
			_, _ = fmt.Fprintf(&out, "  - {name: udp-%[1]d, protocol: UDP, port: %[1]d, targetPort: %[1]d%[2]s}\n", port, nodePort)
		}
		out.WriteString("---\n")
	}
	if out.Len() > 0 {
		tree[path.Join(ClusterDir(c.Name), "gateway-services.yaml")] = bytes.TrimSuffix(out.Bytes(), []byte("---\n"))
	}
}
