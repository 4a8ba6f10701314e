//go:build kube

package apply

import (
	"strings"
	"testing"
)

// foreign contains foreign objects, and objects with some fields of Hawser.
const foreign = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: theirs, namespace: shop, annotations: {other: stays}}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: theirs, namespace: shop}
spec: {type: ClusterSetIP, ports: [{port: 80}], ips: [192.0.2.1]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: ours, namespace: shop, labels: {app.kubernetes.io/managed-by: hawser}}
spec: {type: ClusterSetIP, ports: [{port: 80}], ips: [192.0.2.2]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ours, namespace: shop, labels: {endpointslice.kubernetes.io/managed-by: hawser.dev}}
addressType: IPv4
endpoints: []
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: theirs, namespace: shop, labels: {endpointslice.kubernetes.io/managed-by: other}}
addressType: IPv4
endpoints: []
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    # hawser: begin (kept)
    clusterset.local:53 {
        forward . 169.254.0.1
    }
    # hawser: end
    .:53 {
        whoami
    }
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns-custom, namespace: kube-system}
data: {hawser.server: ours, other.server: theirs}
`

// allObjects lists the objects of a cluster that users or Hawser may create.
func (r *testClusterset) allObjects(cluster string) string {
	r.t.Helper()
	return r.servers[cluster].K(r.t, "get", "-A", "--ignore-not-found", "-o", "name",
		"namespaces,configmaps,secrets,serviceaccounts,daemonsets,pods,endpointslices,serviceexports,serviceimports,clusterproperties,"+
			"clusterroles,clusterrolebindings,roles,rolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings")
}

// TestUninstall removes a cluster from the topology, then its agents, then all objects of Hawser, and no
// foreign object.
func TestUninstall(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "g1")
	g1 := r.servers["g1"]
	r.topology([]string{"g1"}, "shop/web")
	r.must("apply") // for the definitions
	r.expect(1, "uninstall", "g1")
	r.must("uninstall", "g1", "--yes")
	g1.Apply(t, foreign)
	before := r.allObjects("g1")
	r.must("apply")
	// Only gateways may write the annotation.
	g1.K(t, "-n", "shop", "annotate", "serviceexport", "theirs", "hawser.dev/addresses=242.0.0.1", "--as=system:serviceaccount:hawser-system:hawser-gateway")
	g1.K(t, "-n", "shop", "patch", "serviceexport", "theirs", "--subresource=status", "--type=merge", "--field-manager=hawser", "-p",
		`{"status":{"conditions":[{"type":"Valid","status":"True","reason":"Valid","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)
	startAgent(t, g1, "g1", "n1", "gateway")
	slow := startAgent(t, g1, "g1", "n2", "worker")
	slow.set(true)

	if got := r.expect(1, "uninstall", "g1"); !strings.Contains(got.err, "cluster g1 is still in the topology: run hawser leave first") {
		t.Errorf("while the topology has it:\n%s", got.err)
	}
	r.topology([]string{"g2"})
	g1.K(t, "-n", "hawser-system", "label", "daemonsets", "--all", "kustomize.toolkit.fluxcd.io/name=hawser", "kustomize.toolkit.fluxcd.io/namespace=flux-system")
	if got := r.expect(1, "uninstall", "g1"); !strings.Contains(got.out, "is managed by Flux's Kustomization flux-system/hawser: delete or suspend that first") {
		t.Errorf("while Flux keeps it:\n%s", got.out)
	}
	g1.K(t, "-n", "hawser-system", "label", "daemonsets", "--all", "kustomize.toolkit.fluxcd.io/name-", "kustomize.toolkit.fluxcd.io/namespace-")

	dry := r.expect(1, "uninstall", "g1", "--dry-run")
	if got := r.expect(1, "uninstall", "g1", "--timeout", "3s"); !strings.Contains(got.out, "waiting for node n2: a link does not go") {
		t.Errorf("with an agent that is stuck:\n%s%s", got.out, got.err)
	}
	slow.set(false)
	done := r.must("uninstall", "g1")
	if changes(dry.out) != changes(done) {
		t.Errorf("the dry run says\n%s\nand the uninstall\n%s", dry.out, done)
	}
	// The uninstall also deletes the import of the agents and its slice. Everything else is as
	// before.
	want := strings.NewReplacer("serviceimport.multicluster.x-k8s.io/ours\n", "", "endpointslice.discovery.k8s.io/ours\n", "").Replace(before)
	if got := r.allObjects("g1"); got != want {
		t.Errorf("before there was\n%s\nand now\n%s", want, got)
	}
	left := g1.K(t, "-n", "shop", "get", "serviceexport", "theirs", "-o", "jsonpath={.metadata.annotations} {.status.conditions}")
	if strings.Contains(left, "hawser.dev/addresses") || strings.Contains(left, "Valid") || !strings.Contains(left, `"other":"stays"`) {
		t.Errorf("the export of others now says %s", left)
	}
	if corefile := g1.K(t, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"); corefile != ".:53 {\n    whoami\n}" {
		t.Errorf("the Corefile is now %q", corefile)
	}
	if custom := g1.K(t, "-n", "kube-system", "get", "configmap", "coredns-custom", "-o", "jsonpath={.data}"); custom != `{"other.server":"theirs"}` {
		t.Errorf("coredns-custom is now %s", custom)
	}
	for _, crd := range []string{"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"} {
		g1.K(t, "get", "crd", crd)
	}
	if again := r.must("uninstall", "g1"); !strings.Contains(again, "0 deleted") {
		t.Errorf("a second time:\n%s", again)
	}
}

// TestUninstallDefinitions deletes unused definitions on request.
func TestUninstallDefinitions(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "g1")
	g1 := r.servers["g1"]
	r.topology([]string{"g1"})
	r.must("apply")
	g1.Apply(t, foreign)
	got := r.must("uninstall", "g1", "--yes", "--crds")
	if !strings.Contains(got, "kept CustomResourceDefinition serviceexports.multicluster.x-k8s.io: there are 1 objects of its kind, which are not Hawser's") {
		t.Errorf("a definition in use:\n%s", got)
	}
	g1.K(t, "delete", "namespace", "shop")
	r.must("apply")
	r.must("uninstall", "g1", "--yes", "--crds")
	if left, err := g1.Try("get", "crd", "-o", "name"); err != nil || strings.Contains(left, "x-k8s.io") || strings.Contains(left, "hawser") {
		t.Errorf("definitions left: %s, %v", left, err)
	}
}

// TestStatus tests the status of a healthy cluster, of one with an unhealthy agent, and of an
// unreachable one.
func TestStatus(t *testing.T) {
	t.Parallel()
	r := newTestClusterset(t, "g1", "g2")
	r.topology([]string{"g1", "g2"}, "shop/web")
	r.servers["g1"].K(t, "create", "namespace", "shop")
	r.must("apply")
	startAgent(t, r.servers["g1"], "g1", "n1", "gateway")
	well := r.run("status", "--cluster", "g1")
	for range 100 {
		if well = r.run("status", "--cluster", "g1"); well.code == 0 {
			break
		}
	}
	if well.code != 0 || !strings.Contains(well.out, "g1       n1") || !strings.Contains(well.out, "shop/web") {
		t.Errorf("a cluster that is well: %d\n%s%s", well.code, well.out, well.err)
	}
	r.servers["g1"].K(t, "-n", "shop", "patch", "serviceexport", "web", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Valid","status":"False","reason":"NoService","message":"there is no Service","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)
	got := r.expect(1, "status")
	for _, want := range []string{"g1: export shop/web: Valid=False NoService: there is no Service", "g2: no agent has reported"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not in\n%s", want, got.out)
		}
	}
}
