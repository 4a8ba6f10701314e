package render

import (
	"bytes"
	"fmt"
	"path"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// addLeases writes the Leases of the gateways that labels select. The Lease of a gateway records
// its holder. Hawser renders the Leases, so that agents need no permission to create them. Only
// agents write the holder and the times. RBAC cannot restrict list and watch to several names, so
// agents can read all Leases of the namespace. Candidates can update only these Leases.
func addLeases(tree Tree, c *schema.Cluster) {
	var out, names bytes.Buffer
	for _, g := range c.AllGateways() {
		if len(g.NodeSelector) == 0 {
			continue
		}
		name := fabric.LeasePrefix + g.Name
		_, _ = fmt.Fprintf(&out, "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {%s}\n---\n",
			name, Namespace, partOf)
		if names.Len() > 0 {
			names.WriteString(", ")
		}
		names.WriteString(name)
	}
	if out.Len() == 0 {
		return
	}
	writeRole := func(role, extraRules string) {
		_, _ = fmt.Fprintf(&out, `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: %[1]s-leases
  namespace: %[2]s
  labels: {%[3]s}
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch]
%[4]s---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: %[1]s-leases
  namespace: %[2]s
  labels: {%[3]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s-leases}
subjects:
- {kind: ServiceAccount, name: %[1]s, namespace: %[2]s}
---
`, role, Namespace, partOf, extraRules)
	}
	writeRole(AgentName, "")
	// A ValidatingAdmissionPolicy permits a node to write only itself as the holder.
	writeRole(GatewayName, fmt.Sprintf(`- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [%s]
  verbs: [update]
`, names.String()))
	tree[path.Join(ClusterDir(c.Name), "leases.yaml")] = bytes.TrimSuffix(out.Bytes(), []byte("---\n"))
}
