//go:build kube

package apply

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// flannelObjects are objects of a cluster with Flannel, as kubeadm sets one up.
const flannelObjects = `apiVersion: v1
kind: Node
metadata: {name: fra-1, labels: {kubernetes.io/os: linux}}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-flannel}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data: {net-conf.json: '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data: {Corefile: ".:53 {\n    kubernetes cluster.local\n    forward . /etc/resolv.conf\n    reload\n}\n"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: little}
rules:
- {apiGroups: [""], resources: [nodes, configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: little}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: little}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: services, namespace: default}
rules:
- {apiGroups: [""], resources: [services], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: services, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: services}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: asks}]
`

// TestDiscover discovers a topology in a cluster and applies it, without any typed prefix or node name.
func TestDiscover(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "fra")
	fra := r.servers["fra"]
	fra.Apply(t, flannelObjects)
	fra.K(t, "patch", "node", "fra-1", "--subresource=status", "--type=merge", "-p",
		`{"status": {"addresses": [{"type": "ExternalIP", "address": "203.0.113.11"}], `+
			`"conditions": [{"type": "Ready", "status": "True"}]}}`)

	for _, want := range []string{`podCIDRs +10\.244\.0\.0/16 +certain +ConfigMap kube-flannel/kube-flannel-cfg`,
		`serviceCIDRs +10\.199\.0\.0/16 +certain +ServiceCIDR kubernetes`, `dns +coredns +certain`,
		`gateway +fra-1 203\.0\.113\.11 +likely`} {
		if got := r.must("discover", "--context", "fra"); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}

	// A user with few read rights, and a user who may only create Services: the API
	// server's refusal of a dry run contains their range, and nothing is created.
	little := r.kubeconfigFor(t, "fra", "little")
	got := r.expect(1, "discover", "--kubeconfig", little, "--context", "fra")
	if !strings.Contains(got.err, `cannot read servicecidrs.networking.k8s.io: servicecidrs.networking.k8s.io is forbidden: `+
		`User "little"`) ||
		!strings.Contains(got.err, "the range of Services by a dry run") || !strings.Contains(got.out, "10.244.0.0/16") {
		t.Errorf("with few rights:\n%s%s", got.out, got.err)
	}
	if strings.Contains(got.err, "calico") {
		t.Errorf("it queried a network that the cluster lacks:\n%s", got.err)
	}
	got = r.expect(1, "discover", "--kubeconfig", r.kubeconfigFor(t, "fra", "asks"), "--context", "fra")
	if !regexp.MustCompile(`serviceCIDRs +10\.199\.0\.0/16 +certain +the API server, in a dry run`).MatchString(got.out) {
		t.Errorf("the API server's refusal was not read:\n%s%s", got.out, got.err)
	}
	if services := fra.K(t, "get", "services", "-A", "-o", "name"); services != "service/kubernetes" {
		t.Errorf("the dry run created: %s", services)
	}

	set := filepath.Join(r.dir, "set")
	r.in = "yes\n"
	r.must("init", "--context", "fra", "--secrets", set)
	if text := fra.K(t, "-n", "hawser-system", "get", "secret", "hawser-age-identity", "-o",
		"jsonpath={.data.identity\\.txt}"); text == "" {
		t.Error("the identity is not in the cluster")
	}
	if got := r.must("validate", set); got != "" {
		t.Error(got)
	}
	if got := r.must("preflight", "--image", "registry.example.org/agent:v1",
		set); got != "cluster fra (context fra): 0 errors, 0 warnings\n" {
		t.Error(got)
	}
	root := filepath.Join(set, "keys", "root.key")
	r.expect(1, "apply", "--dry-run", "--root-key", root, set)
	r.must("apply", "--root-key", root, set)
	r.expect(0, "apply", "--dry-run", "--root-key", root, set)

	// The existing Secret has another identity, so init refuses to replace it.
	again := r.expect(2, "init", "--context", "fra", "--secrets", filepath.Join(r.dir, "again"))
	if !strings.Contains(again.err, "has the Secret hawser-system/hawser-age-identity already") {
		t.Error(again.err)
	}
}

// kubeconfigFor returns a kubeconfig for another user.
func (r *testClusterset) kubeconfigFor(t *testing.T, cluster, user string) string {
	t.Helper()
	raw, err := os.ReadFile(r.servers[cluster].Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), "user: {token: test}",
		"user: {token: test, as: "+user+"}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
