package apply

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/render"
)

// desired returns the objects of a cluster whose kinds the fake API supports.
func desired(t testing.TB, tree render.Tree, cluster string) Desired {
	t.Helper()
	want, err := DesiredState(tree, cluster)
	if err != nil {
		t.Fatal(err)
	}
	kept := []string{kubeclient.KindNamespace, kubeclient.KindCRD, "ConfigMap", kubeclient.KindSecret, kubeclient.KindDaemonSet, kubeclient.KindServiceExport}
	out := want.Objects[:0:0]
	for _, o := range want.Objects {
		if slices.Contains(kept, o.GetKind()) {
			out = append(out, o)
		}
	}
	want.Objects = out
	return want
}

func planOf(t testing.TB, c *kubeclient.Client, want Desired) *Plan {
	t.Helper()
	p, err := NewPlan(t.Context(), c, want, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planAndExecute plans and executes. It then checks that a second plan is empty.
func planAndExecute(t testing.TB, c *kubeclient.Client, want Desired) *Plan {
	t.Helper()
	p := planOf(t, c, want)
	if err := Execute(t.Context(), c, p); err != nil {
		t.Fatal(err)
	}
	if again := planOf(t, c, want); !again.Empty() {
		t.Errorf("a second plan changes %v", lines(again))
	}
	return p
}

func lines(p *Plan) []string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, string(c.Op)+" "+c.ID.String())
	}
	return out
}

func TestExecuteOrder(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	tree := fakeapi.Tree(t, nil, []string{"g1"}, "hawser-system/web", "late/api")
	p := planAndExecute(t, c, desired(t, tree, "g1"))
	if !slices.Contains(lines(p), "+ ServiceExport hawser-system/web") || len(p.Skipped) != 1 || p.Skipped[0].Name != "api" {
		t.Errorf("changes %v, skipped %v", lines(p), p.Skipped)
	}
	log := api.Changed()
	order := []string{"/api/v1/namespaces/hawser-system", "hawser-inventory", "customresourcedefinitions", "configmaps/hawser-fabric", "daemonsets", "serviceexports/web"}
	last := -1
	for _, part := range order {
		at := slices.IndexFunc(log, func(line string) bool { return strings.Contains(line, part) })
		if at <= last {
			t.Errorf("%s is at %d, after %d:\n%s", part, at, last, strings.Join(log, "\n"))
		}
		last = at
	}

	// What left the tree is deleted; what could not be stays in the inventory.
	withoutNamespace := desired(t, fakeapi.Tree(t, tree, []string{"g1"}, "late/api"), "g1")
	at := "/apis/multicluster.x-k8s.io/v1beta1/namespaces/hawser-system/serviceexports/web"
	api.Fail = at
	p = planOf(t, c, withoutNamespace)
	if !slices.Contains(lines(p), "- ServiceExport hawser-system/web") {
		t.Fatalf("changes %v", lines(p))
	}
	if err := Execute(t.Context(), c, p); err == nil || !strings.Contains(err.Error(), "delete ServiceExport hawser-system/web") {
		t.Errorf("error of a refused deletion: %v", err)
	}
	api.Fail = ""
	if p = planAndExecute(t, c, withoutNamespace); !slices.Equal(lines(p), []string{"- ServiceExport hawser-system/web"}) {
		t.Errorf("the next apply changes %v", lines(p))
	}
}

// TestRetained checks that objects are not deleted after others took them over.
func TestRetained(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	tree := fakeapi.Tree(t, nil, []string{"g1"}, "hawser-system/a", "hawser-system/b")
	planAndExecute(t, c, desired(t, tree, "g1"))
	path := "/apis/multicluster.x-k8s.io/v1beta1/namespaces/hawser-system/serviceexports/"
	api.Edit(path+"a", func(o map[string]any) { delete(o["metadata"].(map[string]any), "managedFields") })
	api.Edit(path+"b", func(o map[string]any) {
		o["metadata"].(map[string]any)["labels"] = map[string]any{"kustomize.toolkit.fluxcd.io/prune": "disabled"}
	})
	p := planAndExecute(t, c, desired(t, fakeapi.Tree(t, tree, []string{"g1"}), "g1"))
	var reasons []string
	for _, skipped := range p.Retained {
		reasons = append(reasons, skipped.Name+": "+skipped.Reason)
	}
	want := []string{"b: it says kustomize.toolkit.fluxcd.io/prune: disabled", "a: hawser apply owns no field of it anymore"}
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	clusters := []string{"g1", "g2", "g3", "g4"}
	tests := []struct {
		name     string
		clusters []string
		exports  []string
		cluster  string
		rules    Rules
		want     string // error; empty: none
	}{
		{name: "half the clusters", clusters: []string{"g1", "g2"}, exports: []string{"hawser-system/a"}, cluster: "g1"},
		{name: "three of four clusters", clusters: []string{"g1"}, exports: []string{"hawser-system/a"}, cluster: "g1",
			want: "the tree removes 3 of 4 clusters (g2, g3, g4), which looks like a mistake: set spec.decommission: true, or pass --allow-mass-delete, if it is meant"},
		{name: "three of four clusters that are meant", clusters: []string{"g1"}, cluster: "g1", rules: Rules{AllowMassDelete: true}},
		{name: "the wrong context", clusters: clusters, cluster: "g2",
			want: "this is cluster g1 of clusterset demo by its inventory, not g2: is the context right? (hawser uninstall takes the old one out)"},
		{name: "no such cluster", clusters: clusters, cluster: "g9",
			want: "the tree has no such cluster: g9 (there is no clusters/g9/kustomization.yaml)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, c := fakeapi.New(t, "g1")
			first := fakeapi.Tree(t, nil, clusters, "hawser-system/a")
			planAndExecute(t, c, desired(t, first, "g1"))
			tree := fakeapi.Tree(t, first, tt.clusters, tt.exports...)
			_, err := DesiredState(tree, tt.cluster)
			if err == nil {
				_, err = NewPlan(t.Context(), c, desired(t, tree, tt.cluster), tt.rules)
			}
			if have := fmt.Sprint(err); err != nil && have != tt.want || err == nil && tt.want != "" {
				t.Errorf("have %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestResembles: the first apply to the wrong cluster is refused, with the differences. Later applies
// are checked by the inventory.
func TestResembles(t *testing.T) {
	t.Parallel()
	node := func(name string, pods ...any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}, "spec": map[string]any{"podCIDRs": pods}}
	}
	service := func(ip string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "kubernetes", "namespace": "default"}, "spec": map[string]any{"clusterIP": ip}}
	}
	agents := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "hawser-identity", "namespace": "hawser-system"}, "data": map[string]any{"cluster": "g7"}}
	const nodes, kubernetes, identity = "/api/v1/nodes/", "/api/v1/namespaces/default/services/kubernetes", "/api/v1/namespaces/hawser-system/configmaps/hawser-identity"
	tests := []struct {
		name    string
		objects map[string]map[string]any
		want    string // differences; empty: none
	}{
		{"the same", map[string]map[string]any{nodes + "node1": node("node1", "10.7.1.0/24"), nodes + "node2": node("node2"), kubernetes: service("10.77.0.1")}, ""},
		{"nothing is said", nil, ""},
		{"other nodes", map[string]map[string]any{nodes + "a": node("a"), nodes + "b": node("b"), nodes + "c": node("c"), nodes + "d": node("d")},
			"gateways' nodes node1 are not there, only a, b, c and 1 more"},
		{"other pods", map[string]map[string]any{nodes + "node1": node("node1", "10.8.1.0/24")}, "nodes have pods outside of podCIDRs [10.7.0.0/16]: node1 10.8.1.0/24"},
		{"pods of both families", map[string]map[string]any{nodes + "node1": node("node1", "10.7.1.0/24", "fd00::/64")}, "nodes have pods outside of podCIDRs [10.7.0.0/16]: node1 fd00::/64"},
		{"other Services", map[string]map[string]any{kubernetes: service("10.96.0.1")}, "the Service kubernetes has 10.96.0.1, outside of serviceCIDRs [10.77.0.0/16]"},
		{"agents of another", map[string]map[string]any{identity: agents, kubernetes: service("10.96.0.1")},
			"its agents belong to cluster g7; the Service kubernetes has 10.96.0.1, outside of serviceCIDRs [10.77.0.0/16]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api, c := fakeapi.New(t, "g1")
			for path, o := range tt.objects {
				api.Objects[path] = o
			}
			want := desired(t, fakeapi.Tree(t, nil, []string{"g1"}), "g1")
			_, err := NewPlan(t.Context(), c, want, Rules{})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if full := "nothing was applied here yet, and it does not look like cluster g1 of the topology: " + tt.want +
				": is the context right? If it is, fix the topology, or pass --allow-other-cluster"; fmt.Sprint(err) != full {
				t.Fatalf("have %v\nwant %s", err, full)
			}
			if log := api.Changed(); len(log) > 0 {
				t.Errorf("changed %v", log)
			}
			p, err := NewPlan(t.Context(), c, want, Rules{AllowOtherCluster: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := Execute(t.Context(), c, p); err != nil {
				t.Fatal(err)
			}
			planOf(t, c, want) // from the second apply on the inventory decides
		})
	}
}

// TestPublished renders again on top of the tree of a cluster: no key is sealed again, and the image of
// the agents stays.
func TestPublished(t *testing.T) {
	t.Parallel()
	_, c := fakeapi.New(t, "g1")
	tree := fakeapi.Tree(t, nil, []string{"g1", "g2"})
	for _, name := range []string{render.AgentFile, render.GatewayFile} {
		tree[name] = bytes.ReplaceAll(tree[name], []byte(render.DefaultImage("")), []byte("example.org/agent:v7"))
	}
	planAndExecute(t, c, desired(t, tree, "g1"))
	published, err := clusterstatus.Published(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	again := fakeapi.Tree(t, published, []string{"g1", "g2"})
	if have, want := render.SealedOf(again, "g1"), render.SealedOf(tree, "g1"); have != want || have.Ciphertext == "" {
		t.Errorf("the keys of g1 were sealed again")
	}
	if image := render.ImageOf(again); image != "example.org/agent:v7" {
		t.Errorf("the agents would run %s", image)
	}
}

// TestPublishedIn checks that a common image is kept, and that different images are an error that
// names both.
func TestPublishedIn(t *testing.T) {
	t.Parallel()
	running := func(name, image string) *kubeclient.Client {
		_, c := fakeapi.New(t, name)
		tree := fakeapi.Tree(t, nil, []string{"g1", "g2"})
		tree[render.GatewayFile] = bytes.ReplaceAll(tree[render.GatewayFile], []byte(render.DefaultImage("")), []byte(image))
		planAndExecute(t, c, desired(t, tree, name))
		return c
	}
	one, same, other := running("g1", "a/b:v1"), running("g2", "a/b:v1"), running("g2", "a/b:v2")
	tree, err := clusterstatus.PublishedIn(t.Context(), []*kubeclient.Client{one, same})
	if image := render.ImageOf(tree); err != nil || image != "a/b:v1" {
		t.Errorf("image %q: %v", image, err)
	}
	tree, err = clusterstatus.PublishedIn(t.Context(), []*kubeclient.Client{one, other})
	want := "clusters run different images of the agent (g1 runs a/b:v1, g2 runs a/b:v2): set spec.agent.image or --image to the image for all clusters"
	if err == nil || err.Error() != want || tree["clusters/g2/keys.yaml"] == nil {
		t.Errorf("error %v", err)
	}
}

// TestKeepCRDs leaves definitions to others, in a cluster that has none and in one
// where they were applied before.
func TestKeepCRDs(t *testing.T) {
	t.Parallel()
	_, c := fakeapi.New(t, "g1")
	bare := fakeapi.Tree(t, nil, []string{"g1"})
	withoutCRDs := desired(t, bare, "g1")
	withoutCRDs.removeSharedCRDs()
	if p := planAndExecute(t, c, withoutCRDs); slices.ContainsFunc(lines(p), func(l string) bool { return strings.Contains(l, "service") }) {
		t.Errorf("changes %v", lines(p))
	}
	tree := fakeapi.Tree(t, bare, []string{"g1"}, "hawser-system/web")
	withoutCRDs = desired(t, tree, "g1")
	withoutCRDs.removeSharedCRDs()
	if p := planAndExecute(t, c, withoutCRDs); len(p.Skipped) != 1 || p.Skipped[0].Name != "web" {
		t.Errorf("skipped %v", p.Skipped)
	}
	planAndExecute(t, c, desired(t, tree, "g1"))
	p := planOf(t, c, withoutCRDs)
	if len(p.Retained) != 2 || !p.Empty() {
		t.Errorf("kept %v, changes %v", p.Retained, lines(p))
	}
}

// TestPrintFoldsClusters checks that equal changes of several clusters are printed once, and all
// others with their cluster.
func TestPrintFoldsClusters(t *testing.T) {
	t.Parallel()
	id := func(name string) kubeclient.ID { return kubeclient.ID{Version: "v1", Kind: "ConfigMap", Name: name} }
	result := func(cluster string, changes ...Change) Result {
		return Result{Cluster: cluster, Context: cluster, Plan: &Plan{Changes: changes}}
	}
	update := func(want string) Change {
		return Change{Op: diff.Update, ID: id("config"), Fields: []Field{{Path: "data.a", Have: "1", Want: want}}}
	}
	common := Change{Op: diff.Create, ID: id("common")}
	var out bytes.Buffer
	if err := Print(&out, []Result{
		result("c1", common, update("2"), Change{Op: diff.Create, ID: id("own")}),
		result("c2", common, update("3")),
		{Cluster: "c3", Context: "c3", Error: "no answer"},
		result("c4", common, update("3")),
	}, true); err != nil {
		t.Fatal(err)
	}
	want := `cluster c1 (context c1): 2 to create, 1 to change, 0 to delete, 0 unchanged
  ~ ConfigMap config
      data.a: 1 -> 2
  + ConfigMap own
cluster c2 (context c2): 1 to create, 1 to change, 0 to delete, 0 unchanged
cluster c3 (context c3): failed: no answer
cluster c4 (context c4): 1 to create, 1 to change, 0 to delete, 0 unchanged
clusters c1, c2, c4: the same 1 object
  + ConfigMap common
clusters c2, c4: the same 1 object
  ~ ConfigMap config
      data.a: 1 -> 3
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
