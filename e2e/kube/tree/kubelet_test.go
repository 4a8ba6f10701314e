//go:build kube

package tree

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/schema/load"
)

// TestKubelet tests that a kubelet of a worker node cannot make its node a gateway, so it cannot
// read the keys. The API server uses the Node authorizer and NodeRestriction. `hawser validate`
// accepts exactly the labels that kubelets may not set.
func TestKubelet(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	kubelet := []string{"--as=system:node:w1", "--as-group=system:nodes", "--as-group=system:authenticated"}
	apply(t, s, "apiVersion: v1\nkind: Namespace\nmetadata: {name: hawser-system}\n")
	apply(t, s, "apiVersion: v1\nkind: Node\nmetadata: {name: w1, labels: {node-restriction.kubernetes.io/set: x, role: worker}}\n")
	s.K(t, "-n", "hawser-system", "create", "secret", "generic", "hawser-age-identity", "--from-literal=identity.txt=KEY")
	secret := append([]string{"-n", "hawser-system", "get", "secret", "hawser-age-identity"}, kubelet...)
	if out, err := s.Try(secret...); err == nil || !strings.Contains(out, "(Forbidden)") {
		t.Fatalf("a kubelet without a pod of gateways reads the keys: %v\n%s", err, out)
	}

	for _, key := range []string{
		"node-restriction.kubernetes.io/hawser-gateway", "hawser.dev.node-restriction.kubernetes.io/gateway",
		"node-role.kubernetes.io/control-plane", "kubernetes.io/role", "example.kubernetes.io/gateway", "example.k8s.io/gateway", "k8s.io/gateway",
		"hawser.dev/gateway", "role", "kubernetes.io", "notkubernetes.io/gateway", "node.kubernetes.io/gateway", "kubelet.kubernetes.io/gateway",
		"x.node.kubernetes.io/gateway", "x.kubelet.kubernetes.io/gateway", "node.kubernetes.io/instance-type", "kubernetes.io/hostname",
		"kubernetes.io/os", "beta.kubernetes.io/arch", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone",
		"topology.k8s.aws/zone-id", "cloud.google.com/gke-nodepool",
	} {
		out, err := s.Try(append([]string{"label", "--overwrite", "node", "w1", key + "=true"}, kubelet...)...)
		if err != nil && !strings.Contains(out, "is not allowed to modify labels: "+key) {
			t.Fatalf("%s: %v\n%s", key, err, out)
		}
		text := strings.Replace(topology, "node: n1, endpoints: [203.0.113.1]", fmt.Sprintf("nodeSelector: {%s: \"true\"}", key), 1)
		_, _, list := load.Topology("clusterset.yaml", []byte(text))
		findings := list.Err()
		if refused := findings != nil && strings.Contains(findings.Error(), "any node could make itself a gateway"); refused != (err == nil) {
			t.Errorf("%s: a kubelet may set it: %t; validate refuses it: %t (%v)", key, err == nil, refused, findings)
		}
	}
	for what, args := range map[string][]string{
		"removes a protected label": {"label", "node", "w1", "node-restriction.kubernetes.io/set-"},
		"changes a protected label": {"label", "--overwrite", "node", "w1", "node-restriction.kubernetes.io/set=true"},
		"labels another node":       {"label", "node", "n1", "role=edge"},
		"removes a taint of a node": {"taint", "node", "w1", "a=b:NoSchedule"},
		"deletes its own node":      {"delete", "node", "w1"},
		"gets a token of gateways":  {"-n", "hawser-system", "create", "token", "hawser-gateway"},
	} {
		if out, err := s.Try(slices.Concat(args, kubelet)...); err == nil {
			t.Errorf("a kubelet %s:\n%s", what, out)
		}
	}

	// An administrator's label is accepted. A gateway's pod on the node then permits its
	// kubelet to read the Secret.
	apply(t, s, `apiVersion: v1
kind: Pod
metadata: {name: hawser-gateway-x, namespace: hawser-system}
spec:
  nodeName: w1
  containers: [{name: agent, image: a, volumeMounts: [{name: identity, mountPath: /i}]}]
  volumes: [{name: identity, secret: {secretName: hawser-age-identity}}]
`)
	for end := 0; ; end++ { // the authorizer reads the pod through a watch
		out, err := s.Try(secret...)
		if err == nil {
			break
		}
		if end > 300 {
			t.Fatalf("a kubelet does not read the Secrets of its pods, so this test proves nothing: %v\n%s", err, out)
		}
	}
}
