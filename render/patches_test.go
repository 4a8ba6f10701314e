package render_test

import (
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

// TestPatches: what people put beside the topology or on the published branch is
// used, and is never overwritten.
// TestKeepCRDs: definitions that somebody else owns in a cluster are not in its part.
func TestKeepCRDs(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	in.Topology.Spec.Clusters[0].CRDs = schema.KeepCRDs
	tree, list := render.Render(in)
	noErrors(t, list)
	for cluster, there := range map[string]bool{"c0": false, "c1": true} {
		objects := build(t, tree, "clusters/"+cluster)
		for _, name := range render.SharedDefinitions() {
			if _, has := objects["CustomResourceDefinition "+name]; has != there {
				t.Errorf("%s has %s: %t", cluster, name, has)
			}
		}
		if objects["CustomResourceDefinition hawsernodes.hawser.dev"] == "" || objects["CustomResourceDefinition clusterproperties.about.k8s.io"] == "" {
			t.Errorf("%s lacks a definition of its own", cluster)
		}
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	patch := func(name string) []byte { return []byte(strings.Replace(nodeSelector, "NAME", name, 1)) }
	in := input(t, world(3, 2))
	in.Previous = render.Tree{
		"clusters/c1/patches/mine.yaml":         patch("published"),
		"clusters/c1/patches/source/gone.yaml":  patch("gone"),
		"clusters/removed/patches/x.yaml":       patch("removed"),
		"clusters/c2/patches/unused/readme.txt": []byte("kept\n"),
	}
	in.Patches = render.Tree{
		"base/all.yaml":                  patch("everywhere"),
		"clusters/c0/only.yaml":          patch("only-this"),
		"clusters/c2/kustomization.yaml": []byte(component),
		"clusters/cx/typo.yaml":          patch("typo"),
		"argocd/repo.yaml": []byte("apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: hawser, namespace: argocd}\n" +
			"spec: {template: {spec: {source: {repoURL: https://git.example.org/r.git}}}}\n"),
	}
	tree, list := render.Render(in)
	noErrors(t, list)
	if len(list) != 1 || list[0].Code != "unused-patch" || list[0].Path != "patches/clusters/cx/typo.yaml" {
		t.Errorf("findings %v", list)
	}
	agent := func(cluster string) string {
		return build(t, tree, "clusters/"+cluster)["DaemonSet hawser-system/hawser-agent"]
	}
	for cluster, want := range map[string][]string{
		"c0": {`everywhere: "yes"`, `only-this: "yes"`}, "c1": {`everywhere: "yes"`, `published: "yes"`},
		"c2": {`everywhere: "yes"`, "dnsPolicy: None"},
	} {
		for _, text := range want {
			if !strings.Contains(agent(cluster), text) {
				t.Errorf("%s lacks %s", cluster, text)
			}
		}
	}
	if text := agent("c1"); strings.Contains(text, "only-this") || strings.Contains(text, "gone") {
		t.Errorf("c1 has a patch too many:\n%s", text)
	}
	for _, gone := range []string{"clusters/removed/patches/x.yaml", "clusters/c1/patches/source/gone.yaml"} {
		if _, ok := tree[gone]; ok {
			t.Errorf("%s is still there", gone)
		}
	}
	if _, ok := tree["clusters/c2/patches/unused/readme.txt"]; !ok {
		t.Error("a file of somebody is lost")
	}
	if set := build(t, tree, "argocd")["ApplicationSet argocd/hawser"]; !strings.Contains(set, "git.example.org") {
		t.Errorf("the ApplicationSet is not patched:\n%s", set)
	}
}
