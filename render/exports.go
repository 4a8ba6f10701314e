package render

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// exportsDir is the folder of a cluster with its ServiceExports, in a folder for
// each namespace. It is no part of the cluster's own folder: a namespace belongs
// to others, may come later or never, and must hold up nothing else.
const exportsDir = "exports"

// ExportsDir is the folder of a cluster's ServiceExports in the tree, which is
// there when the cluster has any.
func ExportsDir(cluster string) string { return path.Join(ClusterDir(cluster), exportsDir) }

// exportsOf gives a cluster's exports by namespace.
func exportsOf(top *schema.ClusterSet, cluster string) map[string][]*schema.Export {
	out := map[string][]*schema.Export{}
	for i := range top.Spec.Exports {
		if e := &top.Spec.Exports[i]; slices.Contains(e.Clusters, cluster) {
			out[e.Namespace] = append(out[e.Namespace], e)
		}
	}
	return out
}

// addExports writes every cluster's ServiceExports.
func addExports(tree Tree, top *schema.ClusterSet) {
	for _, c := range top.Spec.Clusters {
		byNamespace := exportsOf(top, c.Name)
		if len(byNamespace) == 0 {
			continue
		}
		var list strings.Builder
		for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
			file := path.Join(namespace, "exports.yaml")
			tree[path.Join(ExportsDir(c.Name), file)] = serviceExports(byNamespace[namespace])
			_, _ = fmt.Fprintf(&list, "- %s\n", scalar(file))
		}
		tree[path.Join(ExportsDir(c.Name), "kustomization.yaml")] = []byte(kustomizationHead + "resources:\n" + list.String())
	}
}

func serviceExports(list []*schema.Export) []byte {
	slices.SortFunc(list, func(a, b *schema.Export) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	for i, e := range list {
		if i > 0 {
			out.WriteString("---\n")
		}
		_, _ = fmt.Fprintf(&out, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {%s}\n",
			scalar(e.Name), scalar(e.Namespace), partOf)
		if len(e.Labels)+len(e.Annotations) == 0 {
			continue
		}
		out.WriteString("spec:\n")
		mapping(&out, "exportedLabels", e.Labels)
		mapping(&out, "exportedAnnotations", e.Annotations)
	}
	return out.Bytes()
}

func mapping(out *bytes.Buffer, name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	_, _ = fmt.Fprintf(out, "  %s:\n", name)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		_, _ = fmt.Fprintf(out, "    %s: %s\n", scalar(key), scalar(values[key]))
	}
}

// shorten makes a name that a label can hold, 63 characters, different for
// different names.
func shorten(name string) string {
	const most, kept = 63, 54
	if len(name) <= most {
		return name
	}
	return strings.TrimRight(name[:kept], "-") + "-" + hash(name)
}
