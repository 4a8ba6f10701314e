package render_test

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

const nodeSelector = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: hawser-agent, namespace: hawser-system}
spec: {template: {spec: {nodeSelector: {NAME: "yes"}}}}
`

const component = `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- target: {kind: DaemonSet}
  patch: |-
    - op: replace
      path: /spec/template/spec/dnsPolicy
      value: None
`

// TestKeepCRDs checks that a cluster's directory excludes CRDs of other controllers.
func TestKeepCRDs(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	in.Topology.Spec.Clusters[0].CRDs = schema.KeepCRDs
	tree, list := render.Render(in)
	noErrors(t, list)
	for cluster, there := range map[string]bool{"c0": false, "c1": true} {
		objects := build(t, tree, "clusters/"+cluster)
		for _, name := range render.SharedCRDs() {
			if _, has := objects["CustomResourceDefinition "+name]; has != there {
				t.Errorf("%s has %s: %t", cluster, name, has)
			}
		}
		if objects["CustomResourceDefinition hawsernodes.hawser.dev"] == "" || objects["CustomResourceDefinition clusterproperties.about.k8s.io"] == "" {
			t.Errorf("%s lacks a definition of its own", cluster)
		}
	}
}

// TestMemoryLimits checks that agents have a memory limit, and that a patch of a cluster changes it
// only there.
func TestMemoryLimits(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	in.Patches = render.Tree{"clusters/c1/memory.yaml": []byte(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: hawser-gateway, namespace: hawser-system}
spec: {template: {spec: {containers: [{name: agent, resources: {limits: {memory: 2Gi}}}]}}}
`)}
	tree := mustRender(t, in)
	for _, tt := range []struct{ cluster, set, limit string }{
		{"c0", "hawser-agent", "512Mi"}, {"c0", "hawser-gateway", "1Gi"}, {"c1", "hawser-agent", "512Mi"}, {"c1", "hawser-gateway", "2Gi"},
	} {
		have := build(t, tree, "clusters/"+tt.cluster)["DaemonSet hawser-system/"+tt.set]
		if !strings.Contains(have, "limits:\n            memory: "+tt.limit+"\n") || !strings.Contains(have, "memory: 64Mi\n") {
			t.Errorf("%s of %s has no limit %s:\n%s", tt.set, tt.cluster, tt.limit, have)
		}
	}
}

// TestProject checks a topology with OpenPGP keys. Argo CD accepts only commits signed by one of
// them for all Applications. The project permits only the clusters and Argo CD's own cluster as
// destinations.
func TestProject(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	in.Topology.Spec.Trust.OpenPGPKeys = []string{"0123456789abcdef0123456789abcdef01234567"}
	objects := build(t, mustRender(t, in), "argocd")
	if set := objects["ApplicationSet argocd/hawser"]; !strings.Contains(set, "project: hawser\n") || strings.Contains(set, "project: default") {
		t.Errorf("Applications are in another project:\n%s", set)
	}
	project := objects["AppProject argocd/hawser"]
	for _, want := range []string{"keyID: 89ABCDEF01234567\n", "name: c0\n", "name: c1\n", "server: https://kubernetes.default.svc\n"} {
		if !strings.Contains(project, want) {
			t.Errorf("the project lacks %q:\n%s", want, project)
		}
	}
	if strings.Count(project, "namespace: '*'") != 2 {
		t.Errorf("the project allows other destinations:\n%s", project)
	}
}

// TestPatches checks that patches next to the topology take effect. Foreign files on the publish
// branch have no effect and are reported.
func TestPatches(t *testing.T) {
	t.Parallel()
	patch := func(name string) []byte { return []byte(strings.Replace(nodeSelector, "NAME", name, 1)) }
	in := input(t, world(3, 2))
	in.Previous = render.Tree{
		"clusters/c1/patches/mine.yaml":        patch("published"),
		"clusters/c1/patches/source/gone.yaml": patch("gone"),
		"clusters/removed/patches/x.yaml":      patch("removed"),
	}
	in.Patches = render.Tree{
		"base/all.yaml":                  patch("everywhere"),
		"clusters/c0/only.yaml":          patch("only-this"),
		"clusters/c2/kustomization.yaml": []byte(component),
		"clusters/cx/typo.yaml":          patch("typo"),
		"argocd/repo.yaml": []byte("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: hawser, namespace: argocd}\n" +
			"spec: {template: {spec: {project: hawser, source: {repoURL: https://git.example.org/r.git}}}}\n"),
	}
	tree, list := render.Render(in)
	noErrors(t, list)
	var found []string
	for _, d := range list {
		found = append(found, d.Code+" "+d.Path+" "+d.Hint)
	}
	if len(found) != 2 || found[0] != "published-patch clusters/c1/patches/mine.yaml to use it, commit it next to the topology as patches/clusters/c1/mine.yaml" ||
		!strings.HasPrefix(found[1], "unused-patch patches/clusters/cx/typo.yaml ") {
		t.Errorf("findings %v", list)
	}
	agent := func(cluster string) string {
		return build(t, tree, "clusters/"+cluster)["DaemonSet hawser-system/hawser-agent"]
	}
	for cluster, want := range map[string][]string{
		"c0": {`everywhere: "yes"`, `only-this: "yes"`}, "c1": {`everywhere: "yes"`},
		"c2": {`everywhere: "yes"`, "dnsPolicy: None"},
	} {
		for _, text := range want {
			if !strings.Contains(agent(cluster), text) {
				t.Errorf("%s lacks %s", cluster, text)
			}
		}
	}
	if text := agent("c1"); strings.Contains(text, "only-this") || strings.Contains(text, "gone") || strings.Contains(text, "published") {
		t.Errorf("c1 has a patch too many:\n%s", text)
	}
	for _, gone := range []string{"clusters/removed/patches/x.yaml", "clusters/c1/patches/mine.yaml", "clusters/c1/patches/source/gone.yaml"} {
		if _, ok := tree[gone]; ok {
			t.Errorf("%s is still there", gone)
		}
	}
	if set := build(t, tree, "argocd")["ApplicationSet argocd/hawser"]; !strings.Contains(set, "git.example.org") || !strings.Contains(set, "project: hawser") {
		t.Errorf("the ApplicationSet is not patched:\n%s", set)
	}
}

// TestRemotePatches checks that forbidden references of patches are rejected, with their positions
// next to the topology.
func TestRemotePatches(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	in.Patches = render.Tree{
		"clusters/c1/kustomization.yaml": []byte("kind: Component\nresources:\n- \"file:///x?ref=--upload-pack=id>/tmp/y;\"\n"),
		"base/kustomization.yaml":        []byte("kind: Component\nresources: [part]\n"),
		"base/part/kustomization.yaml":   []byte("resources: [https://example.org/x.yaml]\n"),
	}
	_, list := render.Render(in)
	var got []string
	for _, d := range list {
		got = append(got, d.Error()+" ("+d.Code+")")
	}
	want := []string{
		`patches/base/part/kustomization.yaml:1:13: error: resources: "https://example.org/x.yaml" is not a path in this tree (kustomize-remote)`,
		`patches/clusters/c1/kustomization.yaml:3:3: error: resources: "file:///x?ref=--upload-pack=id>/tmp/y;" is not a path in this tree (kustomize-remote)`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
