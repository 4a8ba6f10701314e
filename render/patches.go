package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render/kustomize"
	"hawser.dev/hawser/schema"
)

// Users store patches next to the topology, in patches/base/, patches/clusters/<name>/ and
// patches/argocd/. Each is copied to patches/source/ of the same directory in the tree. A directory
// with a kustomization.yaml is a kustomize Component. Otherwise each YAML file is a patch.
//
// Foreign files on the publish branch have no effect: otherwise anyone with push access could
// change what every node runs.
const (
	// PatchesDir is the directory of the patches next to the topology, and of their copies in
	// each directory of the tree.
	PatchesDir = "patches"
	sourceDir  = "patches/source"
)

// patchableDirs returns the directories that patches may change.
func patchableDirs(top *schema.ClusterSet) []string {
	out := []string{"base", "argocd"}
	for _, c := range top.Spec.Clusters {
		out = append(out, ClusterDir(c.Name))
	}
	slices.Sort(out)
	return out
}

func addPatches(tree Tree, in Input) diag.List {
	patchable := map[string]bool{}
	for _, dir := range patchableDirs(in.Topology) {
		patchable[dir] = true
	}
	var list diag.List
	for _, name := range in.Previous.Paths() {
		dir, file, ok := strings.Cut(name, "/"+PatchesDir+"/")
		if ok && patchable[dir] && !strings.HasPrefix(file, "source/") {
			list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "published-patch", Path: name,
				Summary: "is on the publish branch and not used: it is removed",
				Hint:    "to use it, commit it next to the topology as " + path.Join(PatchesDir, dir, file)})
		}
	}
	for _, name := range in.Patches.Paths() {
		dir := dirOf(name)
		file, ok := strings.CutPrefix(name, dir+"/")
		if !ok || !patchable[dir] {
			list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: "unused-patch", Path: path.Join(PatchesDir, name),
				Summary: "is not used", Hint: "patches are in patches/base, patches/argocd or patches/clusters/<a cluster of the topology>"})
			continue
		}
		tree[path.Join(dir, sourceDir, file)] = in.Patches[name]
	}
	return list
}

// addKustomizations writes the kustomization.yaml of each directory. It returns findings about the
// references of patches, at their positions next to the topology.
func addKustomizations(tree Tree, top *schema.ClusterSet) diag.List {
	byDir := map[string][]string{}
	for name := range tree {
		dir := dirOf(name)
		byDir[dir] = append(byDir[dir], strings.TrimPrefix(name, dir+"/"))
	}
	for _, dir := range patchableDirs(top) {
		files := slices.DeleteFunc(byDir[dir], func(f string) bool { return strings.HasPrefix(f, exportsDir+"/") })
		slices.Sort(files)
		tree[path.Join(dir, "kustomization.yaml")] = kustomization(dir, files)
		byDir[dir] = append(files, "kustomization.yaml")
	}
	var list diag.List
	for _, dir := range patchableDirs(top) {
		if !slices.ContainsFunc(byDir[dir], func(f string) bool { return strings.HasPrefix(f, sourceDir+"/") }) {
			continue
		}
		// Pass only the files of the two directories: the whole tree is slow with a
		// thousand clusters.
		checked := map[string][]byte{}
		for _, from := range []string{dir, "base"} {
			for _, f := range byDir[from] {
				checked[path.Join(from, f)] = tree[path.Join(from, f)]
			}
		}
		for _, d := range kustomize.Check(checked, dir) {
			if from, f, ok := strings.Cut(d.Pos.File, "/"+sourceDir+"/"); ok {
				d.Pos.File = path.Join(PatchesDir, from, f)
			}
			if !slices.ContainsFunc(list, func(o diag.Diagnostic) bool { return o.Pos == d.Pos && o.Summary == d.Summary }) {
				list = append(list, d)
			}
		}
	}
	return list
}

// dirOf returns the directory of the tree that contains a file: clusters/<name> or the first
// element.
func dirOf(name string) string {
	first, rest, _ := strings.Cut(name, "/")
	if first != "clusters" {
		return first
	}
	cluster, _, _ := strings.Cut(rest, "/")
	return ClusterDir(cluster)
}

const kustomizationHead = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"

func kustomization(dir string, files []string) []byte {
	var resources, components, patches []string
	if strings.HasPrefix(dir, "clusters/") {
		resources = append(resources, "../../base")
	}
	for _, f := range files {
		if !strings.Contains(f, "/") {
			resources = append(resources, f)
		}
	}
	for _, sub := range []string{crdPatchesDir, placementDir, PatchesDir, sourceDir} {
		if slices.Contains(files, sub+"/kustomization.yaml") {
			components = append(components, sub)
			continue
		}
		for _, f := range files {
			if path.Dir(f) == sub && isYAML(f) {
				patches = append(patches, f)
			}
		}
	}
	var out strings.Builder
	out.WriteString(kustomizationHead)
	list := func(key, prefix string, items []string) {
		if len(items) == 0 {
			return
		}
		_, _ = fmt.Fprintf(&out, "%s:\n", key)
		for _, item := range items {
			_, _ = fmt.Fprintf(&out, "- %s%s\n", prefix, scalar(item))
		}
	}
	list("resources", "", resources)
	list("components", "", components)
	list("patches", "path: ", patches)
	return []byte(out.String())
}

func isYAML(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}
