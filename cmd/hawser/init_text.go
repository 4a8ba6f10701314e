package main

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/reconciler/discover"
	"hawser.dev/hawser/render"
)

// startingPoint gives the text of a topology with the clusters named, all with
// the same CIDRs, as is usual: they reach each other through global addresses.
func startingPoint(f initFlags, recipients map[string]string) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, `# The whole clusterset: every cluster, every gateway, every exported service.
# Check it with "hawser validate", see what a change does with "hawser diff".
apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata:
  name: %s
spec:
  # What the nodes run in Kubernetes: your registry's copy, or what make image builds.
  # Nobody replaces it but a commit of this line.
  agent:
    image: %s
  # Clusters with the same CIDRs reach each other through global addresses,
  # which are taken from this pool.
  globalnet:
    cidr: 242.0.0.0/8
  clusters:
`, f.name, render.DefaultImage(version))
	for i, cluster := range f.clusters {
		_, _ = fmt.Fprintf(&out, `  - name: %s
    podCIDRs: [10.42.0.0/16]      # as the cluster has them
    serviceCIDRs: [10.43.0.0/16]
`, cluster)
		if recipient := recipients[cluster]; recipient != "" {
			_, _ = fmt.Fprintf(&out, "    recipient: %s\n", recipient)
		} else {
			_, _ = out.WriteString("    # recipient: age1...          # from: hawser keys identity FILE\n")
		}
		_, _ = fmt.Fprintf(&out, `    gateways:
    - name: %[1]s-a
      node: %[1]s-a                 # the Kubernetes node that holds the tunnels
      endpoints: [203.0.113.%[2]d]   # where other clusters reach it (UDP 51820)
`, cluster, 11+i)
	}
	if len(f.clusters) > 0 {
		_, _ = out.WriteString(discover.ExportHint(f.clusters[len(f.clusters)-1]))
	}
	return out.String()
}
