package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/kustomize"
)

// ErrNoCluster is returned for a cluster that has no directory in the tree.
var ErrNoCluster = errors.New("the tree has no such cluster")

// Objects builds a cluster's directories of a rendered tree, like kubectl apply -k. It returns the
// objects in the order in which they are applied.
func Objects(tree render.Tree, cluster string) ([]*unstructured.Unstructured, error) {
	dir := render.ClusterDir(cluster)
	if tree[dir+"/kustomization.yaml"] == nil {
		return nil, fmt.Errorf("%w: %s (there is no %s/kustomization.yaml)", ErrNoCluster, cluster, dir)
	}
	out, err := BuildDir(tree, dir)
	if err != nil {
		return nil, err
	}
	if dir := render.ExportsDir(cluster); tree[dir+"/kustomization.yaml"] != nil {
		exports, err := BuildDir(tree, dir)
		if err != nil {
			return nil, err
		}
		out = append(out, exports...)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return kubeclient.CompareIDs(kubeclient.IDOf(a), kubeclient.IDOf(b))
	})
	return out, nil
}

func BuildDir(tree render.Tree, dir string) ([]*unstructured.Unstructured, error) {
	built, err := kustomize.Build(tree, dir)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		body, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("build %s: read %s %s: %w", dir, r.GetKind(), r.GetName(), err)
		}
		out = append(out, &unstructured.Unstructured{Object: kubeclient.Normalize(body)})
	}
	return out, nil
}

// Clusters returns the sorted names of the clusters of a rendered tree.
func Clusters(tree render.Tree) []string {
	var out []string
	for _, path := range tree.Paths() {
		rest, found := strings.CutPrefix(path, "clusters/")
		if name, file, ok := strings.Cut(rest, "/"); found && ok && file == "kustomization.yaml" {
			out = append(out, name)
		}
	}
	return out
}
