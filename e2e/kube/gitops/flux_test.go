//go:build kube

package gitops

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// fluxCluster is a cluster with Flux, which applies the publish branch.
type fluxCluster struct{ *testCluster }

// TestFlux tests Flux from an empty cluster to the removal of Hawser. Each step depends on the
// previous steps.
func TestFlux(t *testing.T) {
	r := fluxCluster{newTestCluster(t)}
	r.prepare(t, "flux", FluxNamespace)
	StartFlux(t, r.Kubeconfig)
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web"))
	r.runSteps(t, []step{
		{"install", r.install},
		{"no permanent difference", r.writesNothing},
		{"drift", r.drift},
		{"an export arrives", r.exportArrives},
		{"a namespace that is missing", r.namespaceMissing},
		{"a node that is down", r.nodeDown},
		{"a gateway leaves", r.gatewayLeaves},
		{"exports leave", r.exportsLeave},
		{"broken commits", r.brokenCommits},
		{"everything is deleted", r.deleted},
	}, nil)
}

// install follows the documentation, with nodes that start late.
func (r fluxCluster) install(t *testing.T) {
	r.Apply(t, strings.ReplaceAll(Documented(t, page, "kind: GitRepository"), "<repository>", r.url))
	r.Apply(t, r.published(t, "flux/g1/sync.yaml"))

	eventually(t, "agents are on all nodes", func() (string, bool) {
		pods := r.list(t, "pods")
		return fmt.Sprint(pods), len(pods) == 3
	})
	r.awaitReady(t, "hawser")
	eventually(t, "the export is made", func() (string, bool) { return "", r.get(t, "shop", "serviceexport", "web") != nil })
	if status, _, message := condition(r.get(t, FluxNamespace, "kustomization", "hawser-sync"), "Ready"); status == "True" {
		t.Errorf("Flux is ready before the agents: %s", message)
	}
	r.nodes.Set(true, "n1", "n2", "n3")
	r.awaitReady(t, "hawser-sync")
	r.writeExportStatus(t, "shop", "web", false, "there is no Service of this name")
	r.awaitFailure(t, "hawser-shop", "HealthCheckFailed", "web")
	r.writeExportStatus(t, "shop", "web", true, "exported")
	r.awaitReady(t, "hawser-shop")
}

// writesNothing reconciles repeatedly while agents write: Flux writes nothing, and does not
// revert the agents' fields.
func (r fluxCluster) writesNothing(t *testing.T) {
	before := r.list(t, rendered+",serviceexports", hawserLabel)
	if len(before) < 20 {
		t.Fatalf("only %d objects are rendered", len(before))
	}
	for range 2 {
		r.applyAsAgent(t, "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1}\n")
		r.applyAsAgent(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {Corefile: x}\n")
		for _, k := range r.kustomizations(t) {
			r.fluxReconcile(t, k)
			r.awaitReady(t, k)
		}
	}
	if diff := changed(before, r.list(t, rendered+",serviceexports", hawserLabel)); len(diff) > 0 {
		t.Errorf("Flux wrote unchanged objects:\n%s", strings.Join(diff, "\n"))
	}
	web := r.get(t, "shop", "serviceexport", "web")
	if got := web.GetAnnotations()["hawser.dev/addresses"]; got != "242.0.0.7" {
		t.Errorf("the agents' annotation is %q", got)
	}
	if status, _, _ := condition(web, "Ready"); status != "True" {
		t.Errorf("the agents' status is %q", status)
	}
}

// drift changes and deletes rendered objects.
func (r fluxCluster) drift(t *testing.T) {
	r.K(t, "-n", "hawser-system", "patch", "configmap", "hawser-identity", "--type=merge", "-p", `{"data":{"cluster":"g9"}}`)
	r.K(t, "-n", "hawser-system", "set", "image", "daemonset/hawser-agent", "agent=someone/else")
	r.K(t, "delete", "clusterrole", "hawser-agent")
	r.K(t, "-n", "shop", "delete", "serviceexport", "web")
	r.K(t, "-n", FluxNamespace, "delete", "kustomization", "hawser-shop", "--wait=false")
	r.fluxReconcile(t, "hawser")
	r.awaitReady(t, "hawser")
	if got := r.K(t, "-n", "hawser-system", "get", "configmap", "hawser-identity", "-o", "jsonpath={.data.cluster}"); got != "g1" {
		t.Errorf("the cluster's name is %q", got)
	}
	if got := r.K(t, "-n", "hawser-system", "get", "daemonset", "hawser-agent", "-o", "jsonpath={..image}"); strings.Contains(got, "someone") {
		t.Errorf("the image is %q", got)
	}
	if r.get(t, "", "clusterrole", "hawser-agent") == nil {
		t.Error("the ClusterRole did not come back")
	}
	r.fluxReconcile(t, "hawser-sync")
	eventually(t, "the export is back", func() (string, bool) { return "", r.get(t, "shop", "serviceexport", "web") != nil })
	r.writeExportStatus(t, "shop", "web", true, "exported")
	r.awaitReady(t, "hawser-shop")
}

func (r fluxCluster) exportArrives(t *testing.T) {
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "default/late"))
	for _, e := range []string{"shop/api", "default/late"} {
		namespace, name, _ := strings.Cut(e, "/")
		eventually(t, e+" is made", func() (string, bool) { return "", r.get(t, namespace, "serviceexport", name) != nil })
		r.writeExportStatus(t, namespace, name, true, "exported")
	}
	for _, k := range r.kustomizations(t) {
		r.awaitReady(t, k)
	}
	if got := r.kustomizations(t); !slices.Equal(got, []string{"hawser", "hawser-default", "hawser-shop", "hawser-sync"}) {
		t.Errorf("there are %v", got)
	}
}

// namespaceMissing adds an export in a missing namespace: everything else still works.
func (r fluxCluster) namespaceMissing(t *testing.T) {
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "default/late", "nowhere/web"))
	r.awaitFailure(t, "hawser-nowhere", "ReconciliationFailed", `namespaces "nowhere" not found`)
	r.awaitReady(t, "hawser")
	begun := time.Now()
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "default/late", "nowhere/web", "kube-public/web"))
	eventually(t, "the next commit arrives", func() (string, bool) { return "", r.get(t, "kube-public", "serviceexport", "web") != nil })
	t.Logf("figure: an export arrives in %.0f s while another cannot", time.Since(begun).Seconds())
	r.writeExportStatus(t, "kube-public", "web", true, "exported")
	r.K(t, "create", "namespace", "nowhere")
	eventually(t, "the export is made in its new namespace", func() (string, bool) { return "", r.get(t, "nowhere", "serviceexport", "web") != nil })
	r.writeExportStatus(t, "nowhere", "web", true, "exported")
	r.awaitReady(t, "hawser-nowhere")
}

// nodeDown powers off one node: exports still arrive and leave.
func (r fluxCluster) nodeDown(t *testing.T) {
	r.nodes.Set(false, "n3")
	eventually(t, "the DaemonSet is not healthy", func() (string, bool) {
		got := r.K(t, "-n", "hawser-system", "get", "daemonset", "hawser-agent", "-o", "jsonpath={.status.numberReady}")
		return got, got == "" || got == "0"
	})
	begun := time.Now()
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "shop/more", "default/late"))
	eventually(t, "the export is made", func() (string, bool) { return "", r.get(t, "shop", "serviceexport", "more") != nil })
	r.awaitReady(t, "hawser")
	t.Logf("figure: an export arrives in %.0f s while a node is down", time.Since(begun).Seconds())
	r.writeExportStatus(t, "shop", "more", true, "exported")
	r.nodes.Set(true, "n3")
	r.awaitReady(t, "hawser-sync")
	r.awaitReady(t, "hawser-shop")
}

// gatewayLeaves removes a node's gateway from the topology: its agent then has no keys.
func (r fluxCluster) gatewayLeaves(t *testing.T) {
	r.publish(t, topology([]string{"n1"}, "shop/web", "shop/api", "shop/more", "default/late"))
	eventually(t, "the agents are where they belong", func() (string, bool) {
		var have []string
		for _, pod := range r.list(t, "pods") {
			have = append(have, fieldText(pod, "spec", "serviceAccountName")+" "+fieldText(pod, "spec", "nodeName"))
		}
		slices.Sort(have)
		return fmt.Sprint(have), slices.Equal(have, []string{"hawser-agent n2", "hawser-agent n3", "hawser-gateway n1"})
	})
	r.awaitReady(t, "hawser")
}

// exportsLeave prunes an export, and the last one of a namespace.
func (r fluxCluster) exportsLeave(t *testing.T) {
	r.publish(t, topology([]string{"n1"}, "shop/web"))
	eventually(t, "only one export is left", func() (string, bool) {
		exports := r.list(t, "serviceexports")
		return fmt.Sprint(exports), len(exports) == 1 && exports["shop/ServiceExport/web"] != nil
	})
	eventually(t, "their Kustomizations are gone", func() (string, bool) {
		got := r.kustomizations(t)
		return fmt.Sprint(got), slices.Equal(got, []string{"hawser", "hawser-shop", "hawser-sync"})
	})
	r.awaitReady(t, "hawser-shop")
}

// brokenCommits commits a wrong topology, and garbage to the publish branch: the last good state
// stays.
func (r fluxCluster) brokenCommits(t *testing.T) {
	for _, k := range r.kustomizations(t) {
		r.awaitReady(t, k)
	}
	before, head := r.list(t, rendered+",serviceexports", hawserLabel), mustGit(t, r.repo, "rev-parse", "rendered")
	r.commit(t, "clusterset.yaml", "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nspec: {clusters: [{name: g1, podCIDR: 1}]}\n")
	if now := r.reconcile(t, 1); now != head {
		t.Errorf("a broken topology was published as %s", now)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, t.TempDir(), "clone", "-q", "-b", "rendered", r.url, clone)
	r.breakBranch(t, clone)
	r.awaitFailure(t, "hawser", "BuildFailed", "kustomize build failed")
	if diff := changed(before, r.list(t, rendered+",serviceexports", hawserLabel)); len(diff) > 0 {
		t.Errorf("broken commits change the cluster:\n%s", strings.Join(diff, "\n"))
	}
	r.publish(t, topology([]string{"n1"}, "shop/web", "shop/api")) // the reconciler's next commit puts the branch right
	eventually(t, "the export is made", func() (string, bool) { return "", r.get(t, "shop", "serviceexport", "api") != nil })
	r.writeExportStatus(t, "shop", "api", true, "exported")
	for _, k := range r.kustomizations(t) {
		r.awaitReady(t, k)
	}
}

// breakBranch commits a directory of g1 that cannot be built.
func (r fluxCluster) breakBranch(t *testing.T, clone string) {
	t.Helper()
	other := *r.testCluster
	other.repo = clone
	other.commit(t, "clusters/g1/kustomization.yaml", "resources: [../../base, nothing.yaml]\n")
	mustGit(t, clone, "push", "-q", r.repo, "HEAD:rendered")
}

// deleted removes Hawser: three definitions that others may use stay.
func (r fluxCluster) deleted(t *testing.T) {
	r.K(t, "-n", FluxNamespace, "delete", "kustomization", "hawser-sync", "--wait=false")
	r.awaitRemoved(t, "kustomizations")
}

// kustomizations returns the names of all Kustomizations.
func (r fluxCluster) kustomizations(t testing.TB) []string { return r.names(t, "kustomizations") }

// fluxReconcile makes Flux reconcile at once, as flux reconcile does, and waits for the result.
func (r fluxCluster) fluxReconcile(t testing.TB, name string) {
	t.Helper()
	at := time.Now().Format(time.RFC3339Nano)
	r.K(t, "-n", FluxNamespace, "annotate", "kustomization", name, "--overwrite", "reconcile.fluxcd.io/requestedAt="+at)
	eventually(t, name+" is looked at", func() (string, bool) {
		o := r.get(t, FluxNamespace, "kustomization", name)
		if o == nil {
			return "nothing", false
		}
		got := fieldText(o, "status", "lastHandledReconcileAt")
		return got, got == at
	})
}

// awaitReady waits until a Kustomization is ready at the published commit.
func (r fluxCluster) awaitReady(t testing.TB, name string) {
	t.Helper()
	want := revision("rendered", mustGit(t, r.repo, "rev-parse", "rendered"))
	eventually(t, name+" is ready at "+want, func() (string, bool) {
		o := r.get(t, FluxNamespace, "kustomization", name)
		status, reason, message := condition(o, "Ready")
		if o == nil {
			return message, false
		}
		at := fieldText(o, "status", "lastAppliedRevision")
		return fmt.Sprint(at, status, reason, message), status == "True" && at == want
	})
}

// awaitFailure waits until a Kustomization has failed.
func (r fluxCluster) awaitFailure(t testing.TB, name, reason, message string) {
	t.Helper()
	eventually(t, name+" fails: "+reason, func() (string, bool) {
		status, haveReason, haveMessage := condition(r.get(t, FluxNamespace, "kustomization", name), "Ready")
		return fmt.Sprint(status, haveReason, haveMessage), status == "False" && haveReason == reason && strings.Contains(haveMessage, message)
	})
}

// fieldText returns a field of an object, or an empty string.
func fieldText(o *unstructured.Unstructured, path ...string) string {
	out, _, _ := unstructured.NestedString(o.Object, path...)
	return out
}
