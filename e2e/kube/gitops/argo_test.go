//go:build kube

package gitops

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// argoCluster is the cluster g1 with Argo CD, which applies the publish branch to g1 and sometimes g2.
type argoCluster struct {
	*testCluster
	other     *api.Server // g2, without nodes
	recipient string      // of g2
}

// TestArgo is TestFlux with Argo CD.
func TestArgo(t *testing.T) {
	r := argoCluster{testCluster: newTestCluster(t), other: api.Start(t, "g2", controllers...)}
	r.recipient = r.newRecipient(t)
	r.prepare(t, "argo", ArgoNamespace)
	r.Apply(t, ArgoSettings(Documented(t, page, "resource.customizations.health"))+
		"---\n"+ArgoCluster("g1", "https://kubernetes.default.svc", "test")+"---\n"+ArgoCluster("g2", r.other.URL, "test"))
	StartArgo(t, r.Kubeconfig)
	r.commit(t, repoPatch, r.documented(t, "spec: {template:"))
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web"))
	r.runSteps(t, []step{
		{"install", r.install},
		{"no permanent difference", r.writesNothing},
		{"drift", r.drift},
		{"an export arrives", r.exportArrives},
		{"a namespace that is missing", r.namespaceMissing},
		{"a node that is down", r.nodeDown},
		{"a commit that is refused", r.refused},
		{"exports leave", r.exportsLeave},
		{"a cluster comes and goes", r.clusterGoes},
		{"everything is deleted", r.deleted},
	}, r.logState)
}

// repoPatch is the patch with the ApplicationSet's repository.
const repoPatch = "patches/argocd/repo.yaml"

// documented returns a block of the documentation with the repository's URL.
func (r argoCluster) documented(t *testing.T, text string) string {
	t.Helper()
	return strings.ReplaceAll(Documented(t, page, text), "<repository>", r.url)
}

func (r argoCluster) install(t *testing.T) {
	made := r.watchCreations(t)
	r.Apply(t, r.documented(t, "kind: Application\n"))
	r.awaitState(t, "hawser-g1", "Synced", "Progressing")
	r.checkOrder(t, made)
	r.awaitState(t, "hawser-g1-shop", "Synced", "Progressing")
	r.writeExportStatus(t, "shop", "web", false, "there is no Service of this name")
	r.awaitState(t, "hawser-g1-shop", "Synced", "Degraded")
	r.writeExportStatus(t, "shop", "web", true, "exported")
	r.nodes.Set(true, "n1", "n2", "n3")
	r.awaitHealthy(t)
}

// writesNothing tests that Argo CD writes nothing while agents write, also after a hard refresh.
func (r argoCluster) writesNothing(t *testing.T) {
	before := r.list(t, rendered+",serviceexports", hawserLabel)
	if len(before) < 20 {
		t.Fatalf("only %d objects are rendered", len(before))
	}
	syncs := r.syncs(t)
	for range 2 {
		r.applyAsAgent(t, "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1}\n")
		r.applyAsAgent(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {Corefile: x}\n")
		for _, app := range r.applications(t) {
			r.refresh(t, app, "hard")
		}
		r.awaitHealthy(t)
	}
	if diff := changed(before, r.list(t, rendered+",serviceexports", hawserLabel)); len(diff) > 0 {
		t.Errorf("Argo CD wrote unchanged objects:\n%s", strings.Join(diff, "\n"))
	}
	if now := r.syncs(t); now != syncs {
		t.Errorf("Argo CD synced again: %s, before %s", now, syncs)
	}
}

// drift changes and deletes rendered objects. Argo CD detects it without a refresh.
func (r argoCluster) drift(t *testing.T) {
	r.K(t, "-n", "hawser-system", "patch", "configmap", "hawser-identity", "--type=merge", "-p", `{"data":{"cluster":"g9"}}`)
	r.K(t, "-n", "hawser-system", "set", "image", "daemonset/hawser-agent", "agent=someone/else")
	r.K(t, "delete", "clusterrole", "hawser-agent")
	r.K(t, "-n", "shop", "label", "serviceexport", "web", "app.kubernetes.io/part-of=else", "--overwrite")
	eventually(t, "the cluster's name is put back", func() (string, bool) {
		got := r.K(t, "-n", "hawser-system", "get", "configmap", "hawser-identity", "-o", "jsonpath={.data.cluster}")
		return got, got == "g1"
	})
	eventually(t, "the image is put back", func() (string, bool) {
		got := r.K(t, "-n", "hawser-system", "get", "daemonset", "hawser-agent", "-o", "jsonpath={..image}")
		return got, !strings.Contains(got, "someone")
	})
	eventually(t, "the ClusterRole is back", func() (string, bool) { return "", r.get(t, "", "clusterrole", "hawser-agent") != nil })
	eventually(t, "the export's label is put back", func() (string, bool) {
		got := r.get(t, "shop", "serviceexport", "web").GetLabels()["app.kubernetes.io/part-of"]
		return got, got == "hawser"
	})
	r.agentsOwn(t)
	r.K(t, "-n", "shop", "delete", "serviceexport", "web")
	eventually(t, "the export is back", func() (string, bool) { return "", r.get(t, "shop", "serviceexport", "web") != nil })
	r.writeExportStatus(t, "shop", "web", true, "exported")
	r.awaitHealthy(t)
}

// agentsOwn tests that only the agents own the fields that they wrote on an export.
func (r argoCluster) agentsOwn(t *testing.T) {
	t.Helper()
	web := r.get(t, "shop", "serviceexport", "web")
	if got := web.GetAnnotations()["hawser.dev/addresses"]; got != "242.0.0.7" {
		t.Errorf("the agents' annotation is %q", got)
	}
	if status, _, _ := condition(web, "Ready"); status != "True" {
		t.Errorf("the agents' status is %q", status)
	}
	out := r.K(t, "-n", "shop", "get", "serviceexport", "web", "--show-managed-fields", "-o",
		`jsonpath={range .metadata.managedFields[?(@.fieldsV1.f:metadata.f:annotations.f:hawser\.dev/addresses)]}{.manager} {end}`)
	if out != "hawser" {
		t.Errorf("the agents' annotation belongs to %q", out)
	}
}

// exportArrives tests that a commit changes only the affected objects.
func (r argoCluster) exportArrives(t *testing.T) {
	kinds := rendered + ",serviceexports"
	before, had := r.list(t, kinds, hawserLabel), r.renderedObjects(t)
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "default/late"))
	r.awaitExport(t, "shop", "api")
	r.awaitExport(t, "default", "late")
	r.awaitHealthy(t)
	want := []string{"default/ServiceExport/late is new", "shop/ServiceExport/api is new"}
	for name, text := range r.renderedObjects(t) {
		if had[name] != text {
			want = append(want, name+" changed")
		}
	}
	slices.Sort(want)
	have := changed(before, r.list(t, kinds, hawserLabel))
	for i := range have {
		have[i], _, _ = strings.Cut(have[i], " from\n")
	}
	if len(want) < 3 || !slices.Equal(have, want) {
		t.Errorf("the commit changes\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	apps := []string{"hawser", "hawser-g1", "hawser-g1-default", "hawser-g1-shop"}
	if got := r.applications(t); !slices.Equal(got, apps) {
		t.Errorf("there are %v, want %v", got, apps)
	}
}

// namespaceMissing adds an export in a missing namespace: everything else still works.
func (r argoCluster) namespaceMissing(t *testing.T) {
	r.publish(t, topology([]string{"n1", "n2"}, "shop/web", "shop/api", "default/late", "nowhere/web"))
	r.awaitSyncFailure(t, "hawser-g1-nowhere", `namespaces "nowhere" not found`)
	r.awaitState(t, "hawser-g1", "Synced", "Healthy")
	r.awaitState(t, "hawser-g1-shop", "Synced", "Healthy")
	r.K(t, "create", "namespace", "nowhere")
	r.awaitExport(t, "nowhere", "web")
	r.awaitHealthy(t)
}

// nodeDown powers off one node, and removes another gateway: commits still arrive.
func (r argoCluster) nodeDown(t *testing.T) {
	r.nodes.Set(false, "n3")
	r.awaitState(t, "hawser-g1", "Synced", "Progressing")
	r.publish(t, topology([]string{"n1"}, "shop/web", "shop/api", "shop/more", "default/late"))
	r.awaitExport(t, "shop", "more")
	eventually(t, "the agents are where they belong", func() (string, bool) {
		r.state(t, "hawser-g1")
		var have []string
		for _, pod := range r.list(t, "pods") {
			have = append(have, fieldText(pod, "spec", "serviceAccountName")+" "+fieldText(pod, "spec", "nodeName"))
		}
		slices.Sort(have)
		return fmt.Sprint(have), slices.Equal(have, []string{"hawser-agent n2", "hawser-agent n3", "hawser-gateway n1"})
	})
	r.nodes.Set(true, "n3")
	r.awaitHealthy(t)
}

// refused publishes a commit that the API server rejects: the next commit is applied.
func (r argoCluster) refused(t *testing.T) {
	const file = "patches/clusters/g1/strategy.yaml"
	patch := "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: hawser-agent, namespace: hawser-system}\nspec: {updateStrategy: {type: %s, rollingUpdate: null}}\n"
	r.commit(t, file, fmt.Sprintf(patch, "Never"))
	r.reconcile(t, 0)
	r.awaitSyncFailure(t, "hawser-g1", "updateStrategy")
	r.commit(t, file, fmt.Sprintf(patch, "OnDelete"))
	r.reconcile(t, 0)
	r.awaitHealthy(t)
	if got := fieldText(r.get(t, "hawser-system", "daemonset", "hawser-agent"), "spec", "updateStrategy", "type"); got != "OnDelete" {
		t.Errorf("the strategy is %q", got)
	}
}

func (r argoCluster) exportsLeave(t *testing.T) {
	r.publish(t, topology([]string{"n1"}, "shop/web"))
	r.awaitApplications(t, "hawser", "hawser-g1", "hawser-g1-shop")
	eventually(t, "only one export is left", func() (string, bool) {
		r.state(t, "hawser-g1-shop")
		exports := r.list(t, "serviceexports")
		return fmt.Sprint(slices.Sorted(maps.Keys(exports))), len(exports) == 1 && exports["shop/ServiceExport/web"] != nil
	})
	r.awaitHealthy(t)
}

// untracked is a definition that stays. Argo CD does not mark definitions as its own, so it deletes
// none with an Application.
const untracked = "CustomResourceDefinition/hawsernodes.hawser.dev"

// deleted removes Hawser; definitions stay.
func (r argoCluster) deleted(t *testing.T) {
	r.K(t, "-n", ArgoNamespace, "delete", "application", "hawser")
	r.K(t, "-n", ArgoNamespace, "delete", "applicationset", "hawser", "--wait=false")
	r.awaitRemoved(t, "applications", untracked)
}
