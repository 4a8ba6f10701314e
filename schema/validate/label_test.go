package validate

import "testing"

// TestRestrictedLabel checks the rules of the NodeRestriction admission plugin. TestKubelet
// (e2e/kube/tree) compares the same keys with a real API server.
func TestRestrictedLabel(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"node-restriction.kubernetes.io/hawser-gateway":     true,
		"hawser.dev.node-restriction.kubernetes.io/gateway": true,
		"node-role.kubernetes.io/control-plane":             true,
		"kubernetes.io/role":                                true,
		"example.kubernetes.io/gateway":                     true,
		"example.k8s.io/gateway":                            true,
		"k8s.io/gateway":                                    true,

		"hawser.dev/gateway":                     false,
		"role":                                   false,
		"kubernetes.io":                          false,
		"xnode-restriction.kubernetes.io.evil/a": false,
		"notkubernetes.io/gateway":               false,
		"node.kubernetes.io/gateway":             false,
		"kubelet.kubernetes.io/gateway":          false,
		"x.node.kubernetes.io/gateway":           false,
		"x.kubelet.kubernetes.io/gateway":        false,
		"node.kubernetes.io/instance-type":       false,
		"kubernetes.io/hostname":                 false,
		"kubernetes.io/os":                       false,
		"beta.kubernetes.io/arch":                false,
		"topology.kubernetes.io/zone":            false,
		"failure-domain.beta.kubernetes.io/zone": false,
		"topology.k8s.aws/zone-id":               false,
		"cloud.google.com/gke-nodepool":          false,
	} {
		if have := isRestrictedLabel(key); have != want {
			t.Errorf("%s: restricted = %t, want %t", key, have, want)
		}
	}
}
