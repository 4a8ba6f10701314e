package render

import (
	"bytes"
	"fmt"
	"path"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// addLeases writes the Leases of the gateways whose nodes are picked by labels: agents
// agree by them which node holds which gateway. They are rendered, so that agents need
// not make any. Holder and times are written by agents alone. A list or a watch of several
// by name does not exist, so agents may read all Leases of the namespace; those that may
// become gateways may update these ones.
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
	rules := func(role, more string) {
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
`, role, Namespace, partOf, more)
	}
	rules(AgentName, "")
	// A ValidatingAdmissionPolicy lets each node write none but itself as the holder.
	rules(GatewayName, fmt.Sprintf(`- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [%s]
  verbs: [update]
`, names.String()))
	tree[path.Join(ClusterDir(c.Name), "leases.yaml")] = bytes.TrimSuffix(out.Bytes(), []byte("---\n"))
}
