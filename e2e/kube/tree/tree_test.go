//go:build kube

package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
)

const topology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  dynamicExports: {namespaces: ["*"]}
  clusters:
  - name: c1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways: [{name: a, node: n1, endpoints: [203.0.113.1]}]
    egress: [{name: db, namespace: default}]
  exports:
  - {name: web, namespace: default, clusters: [c1], ports: [{port: 80}], labels: {team: a}}
  - {name: web, namespace: missing, clusters: [c1], ports: [{port: 80}]}
`

// who is an agent with a token of its pod, like the kubelet's token for it.
type who struct {
	t     *testing.T
	s     *api.Server
	token string
}

func agent(t *testing.T, s *api.Server, account, node string) who {
	t.Helper()
	pod := account + "-" + node
	apply(t, s, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n", node))
	apply(t, s, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: hawser-system}\nspec: {nodeName: %s, serviceAccountName: %s, containers: [{name: a, image: a}]}\n",
		pod, node, account))
	token := s.K(t, "-n", "hawser-system", "create", "token", account, "--bound-object-kind=Pod", "--bound-object-name="+pod)
	return who{t: t, s: s, token: strings.TrimSpace(token)}
}

func apply(t *testing.T, s *api.Server, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s.K(t, "apply", "--server-side", "--force-conflicts", "--field-manager=others", "-f", file)
}

// try runs kubectl as the agent, with a manifest on standard input.
func (w who) try(manifest string, args ...string) error {
	w.t.Helper()
	cmd := exec.Command(w.s.Kubectl, append([]string{"--kubeconfig=/dev/null", "--server=" + w.s.URL, "--insecure-skip-tls-verify", "--token=" + w.token}, args...)...)
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// sure runs kubectl as the agent, and checks that the API server allows or forbids the request.
func (w who) sure(allowed bool, manifest string, args ...string) {
	w.t.Helper()
	err := w.try(manifest, args...)
	switch {
	case allowed && err != nil:
		w.t.Errorf("%v: %v", args, err)
	case !allowed && (err == nil || !strings.Contains(err.Error(), "(Forbidden)")):
		w.t.Errorf("%v is not forbidden: %v", args, err)
	}
}

// write applies a manifest as the agent, which must be allowed or forbidden.
func (w who) write(allowed bool, manifest string) {
	w.t.Helper()
	w.sure(allowed, manifest, "apply", "--server-side", "--force-conflicts", "--field-manager=hawser", "-f", "-")
}

func node(name string) string {
	return "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: " + name + "}\n"
}

// lease returns a gateway's Lease held by a node.
func lease(node string) string {
	spec := "spec: {holderIdentity: " + node + "}\n"
	if node == "" {
		spec = "spec: {leaseTransitions: 2}\n"
	}
	return "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: hawser-gateway-edge-1, namespace: hawser-system}\n" + spec
}

// leaseRights contains the rights of a cluster whose gateways are selected by labels.
const leaseRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases, namespace: hawser-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leases-update, namespace: hawser-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [hawser-gateway-edge-1], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases, namespace: hawser-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases}
subjects:
- {kind: ServiceAccount, name: hawser-agent, namespace: hawser-system}
- {kind: ServiceAccount, name: hawser-gateway, namespace: hawser-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leases-update, namespace: hawser-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leases-update}
subjects:
- {kind: ServiceAccount, name: hawser-gateway, namespace: hawser-system}
`

func slice(name, labels string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: default, labels: {%s}}\n"+
		"addressType: IPv4\nendpoints: []\nports: []\n", name, labels)
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: kube-system}\ndata: {hawser.server: x}\n"
}

// TestRights tests which requests of each agent a real API server allows and forbids.
func TestRights(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	dir := s.Install(t, topology)
	s.K(t, "apply", "--server-side", "--validate=strict", "-f", dir+"/clusters/c1/exports/default/exports.yaml")
	if out, err := s.Try("apply", "--server-side", "-k", dir+"/clusters/c1/exports"); err == nil || !strings.Contains(out, `namespaces "missing" not found`) {
		t.Errorf("an export of a namespace that is missing: %v\n%s", err, out)
	}
	worker, gateway := agent(t, s, "hawser-agent", "n2"), agent(t, s, "hawser-gateway", "n1")

	// The API server needs a moment to apply policies.
	for end := 0; worker.try(node("n1"), "apply", "--server-side", "--field-manager=hawser", "-f", "-") == nil; end++ {
		if s.K(t, "delete", "hawsernode", "n1"); end > 300 {
			t.Fatal("the policy of HawserNodes does not take effect")
		}
	}
	worker.write(true, node("n2"))
	worker.sure(true, "", "patch", "hawsernode", "n2", "--subresource=status", "--type=merge", "-p",
		`{"status":{"role":"worker","cluster":"c1","fabric":"0123","links":{"up":1,"total":2}}}`)
	gateway.sure(false, "", "patch", "hawsernode", "n2", "--subresource=status", "--type=merge", "-p", `{"status":{"role":"gateway"}}`)
	gateway.write(true, node("n1"))
	who{t: t, s: s, token: strings.TrimSpace(s.K(t, "-n", "hawser-system", "create", "token", "hawser-agent"))}.write(false, node("n2"))
	if out := s.K(t, "get", "hawsernodes", "n2"); !strings.Contains(out, "worker") || !strings.Contains(out, "0123") {
		t.Errorf("columns\n%s", out)
	}

	// A node may write only itself as the holder of a gateway selected by labels.
	apply(t, s, leaseRights)
	apply(t, s, lease("n2"))
	for end := 0; gateway.try(lease("n3"), "replace", "-f", "-") == nil; end++ {
		if apply(t, s, lease("n2")); end > 300 {
			t.Fatal("the policy of Leases does not take effect")
		}
	}
	gateway.sure(false, lease(""), "replace", "-f", "-")
	gateway.sure(true, lease("n1"), "replace", "-f", "-")
	gateway.sure(false, lease("n2"), "replace", "-f", "-")
	gateway.sure(true, lease(""), "replace", "-f", "-")
	worker.sure(false, lease("n2"), "replace", "-f", "-")
	worker.sure(true, "", "-n", "hawser-system", "get", "leases")
	gateway.sure(false, "", "-n", "hawser-system", "delete", "lease", "hawser-gateway-edge-1")

	own := "endpointslice.kubernetes.io/managed-by: hawser.dev, multicluster.kubernetes.io/service-name: web"
	worker.write(false, slice("own", own))
	for end := 0; gateway.try(slice("foreign", "a: b"), "apply", "--server-side", "-f", "-") == nil; end++ {
		if s.K(t, "delete", "endpointslice", "foreign"); end > 300 {
			t.Fatal("the policy of EndpointSlices does not take effect")
		}
	}
	gateway.write(true, slice("own", own))
	gateway.write(false, slice("own2", own+", kubernetes.io/service-name: kubernetes"))
	apply(t, s, slice("foreign", "a: b"))
	gateway.write(false, slice("foreign", own))
	gateway.sure(false, "", "delete", "endpointslice", "foreign")
	gateway.sure(true, "", "delete", "endpointslice", "own")

	// Of the cluster's DNS, gateways may write only Hawser's block, and the block may forward
	// only to the agents.
	theirs := ".:53 {\n    forward . /etc/resolv.conf\n}\n"
	s.K(t, "-n", "kube-system", "create", "configmap", "coredns", "--from-literal=Corefile="+theirs)
	s.K(t, "-n", "kube-system", "create", "configmap", "coredns-custom", "--from-literal=theirs.server=x")
	change := func(name, key, text string) []string {
		data, err := json.Marshal(map[string]any{"data": map[string]string{key: text}})
		if err != nil {
			t.Fatal(err)
		}
		return []string{"-n", "kube-system", "patch", "configmap", name, "--type=merge", "-p", string(data)}
	}
	for end := 0; gateway.try("", change("coredns-custom", "hawser.server", "x")...) == nil; end++ {
		if s.K(t, change("coredns-custom", "hawser.server", "y")...); end > 300 {
			t.Fatal("the policy of the cluster's DNS does not take effect")
		}
	}
	gateway.sure(false, "", change("coredns-custom", "theirs.server", "y")...)
	text, err := corefile.Insert(theirs, forward)
	if err != nil {
		t.Fatal(err)
	}
	gateway.sure(true, "", change("coredns", "Corefile", text)...)
	gateway.sure(false, "", change("coredns", "Corefile", strings.Replace(text, "resolv", "x", 1))...)
	gateway.sure(false, "", change("coredns", "Corefile", strings.Replace(text, "clusterset.local", ".", 1))...)
	gateway.sure(true, "", change("coredns", "Corefile", theirs)...)
	gateway.write(false, configMap("other"))
	worker.write(false, configMap("coredns-custom"))
	gateway.sure(true, "", "get", "serviceexports,serviceimports,pods,namespaces,nodes,services", "-A")
	worker.sure(true, "", "get", "serviceexports,serviceimports,namespaces,nodes,services", "-A")
	worker.sure(false, "", "get", "pods", "-A")
	for _, w := range []who{worker, gateway} {
		w.sure(false, "", "get", "secrets", "-n", "hawser-system")
	}
	gateway.sure(true, "", "annotate", "serviceexport", "web", "hawser.dev/addresses=242.0.0.1")
	// Users with write access to ServiceExports, also administrators, must not write the record.
	for end := 0; ; end++ {
		out, err := s.Try("annotate", "--overwrite", "serviceexport", "web", "hawser.dev/addresses=242.0.0.2")
		if err != nil && strings.Contains(out, "gateways write the annotation") {
			break
		}
		if s.K(t, "annotate", "--overwrite", "serviceexport", "web", "hawser.dev/addresses-"); end > 300 {
			t.Fatalf("the policy of recorded addresses does not take effect: %v\n%s", err, out)
		}
		gateway.sure(true, "", "annotate", "--overwrite", "serviceexport", "web", "hawser.dev/addresses=242.0.0.1")
	}
	copied := "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: copied\n  namespace: default\n" +
		"  annotations: {hawser.dev/addresses: 242.0.0.1}\n"
	file := filepath.Join(t.TempDir(), "copied.yaml")
	if err := os.WriteFile(file, []byte(copied), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Try("create", "-f", file); err == nil || !strings.Contains(out, "leave it out") {
		t.Errorf("an export with another's address: %v\n%s", err, out)
	}
	s.K(t, "annotate", "serviceexport", "web", "x=y")
	if out := s.K(t, "get", "serviceexport", "web", "-o", "yaml"); !strings.Contains(out, "hawser.dev/addresses: 242.0.0.1") {
		t.Errorf("the record is another:\n%s", out)
	}
	s.K(t, "annotate", "serviceexport", "web", "hawser.dev/addresses-")
	gateway.sure(false, "", "delete", "serviceexport", "web")
	worker.sure(false, "", "annotate", "serviceexport", "web", "x=y")
}

// other is the definition of an older implementation.
const other = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: serviceexports.multicluster.x-k8s.io}
spec:
  group: multicluster.x-k8s.io
  scope: Namespaced
  names: {kind: ServiceExport, plural: serviceexports, singular: serviceexport}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

// TestDefinitionsOfOthers tests that foreign definitions and their objects stay, and that objects are
// served in both versions.
func TestDefinitionsOfOthers(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	apply(t, s, other)
	s.Defined(t)
	export := "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: theirs, namespace: default}\n"
	apply(t, s, export)
	dir := api.Tree(t, topology)
	if out, err := s.Try("apply", "--server-side", "-f", dir+"/base/crds.yaml"); err == nil || !strings.Contains(out, "conflict") {
		t.Errorf("their definition is replaced without a word: %v\n%s", err, out)
	}
	s.Install(t, topology)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		have := ""
		for end := 0; !strings.Contains(have, "theirs") && end < 300; end++ { // a version takes a moment to be served
			have, _ = s.Try("get", "serviceexports."+version+".multicluster.x-k8s.io", "-n", "default", "-o", "name")
		}
		if !strings.Contains(have, "theirs") {
			t.Errorf("%s: have %s", version, have)
		}
	}
}
