package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
)

// exportsDir is the directory of a cluster's ServiceExports, with one directory for each namespace.
// The cluster's kustomization excludes exportsDir: a namespace belongs to a user, can be missing,
// and must not block other objects.
const exportsDir = "exports"

// ExportsDir returns the directory of a cluster's ServiceExports in the tree. The directory exists
// if the cluster has exports.
func ExportsDir(cluster string) string { return path.Join(ClusterDir(cluster), exportsDir) }

// exportsByCluster returns the exports of each cluster by namespace.
func exportsByCluster(top *schema.ClusterSet) map[string]map[string][]*schema.Export {
	out := make(map[string]map[string][]*schema.Export, len(top.Spec.Clusters))
	for i := range top.Spec.Exports {
		e := &top.Spec.Exports[i]
		for _, cluster := range e.Clusters {
			if out[cluster] == nil {
				out[cluster] = map[string][]*schema.Export{}
			}
			out[cluster][e.Namespace] = append(out[cluster][e.Namespace], e)
		}
	}
	return out
}

// addExports writes a cluster's ServiceExports.
func addExports(tree Tree, cluster string, byNamespace map[string][]*schema.Export) {
	if len(byNamespace) == 0 {
		return
	}
	var list strings.Builder
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		file := path.Join(namespace, "exports.yaml")
		tree[path.Join(ExportsDir(cluster), file)] = serviceExports(byNamespace[namespace])
		_, _ = fmt.Fprintf(&list, "- %s\n", scalar(file))
	}
	tree[path.Join(ExportsDir(cluster), "kustomization.yaml")] = []byte(kustomizationHead + "resources:\n" + list.String())
}

func serviceExports(exports []*schema.Export) []byte {
	slices.SortFunc(exports, func(a, b *schema.Export) int { return strings.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	for i, e := range exports {
		if i > 0 {
			out.WriteString("---\n")
		}
		_, _ = fmt.Fprintf(&out, "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {%s}\n",
			scalar(e.Name), scalar(e.Namespace), partOf)
		if len(e.Labels)+len(e.Annotations) == 0 {
			continue
		}
		out.WriteString("spec:\n")
		writeMapping(&out, "exportedLabels", e.Labels)
		writeMapping(&out, "exportedAnnotations", e.Annotations)
	}
	return out.Bytes()
}

func writeMapping(out *bytes.Buffer, name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	_, _ = fmt.Fprintf(out, "  %s:\n", name)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		_, _ = fmt.Fprintf(out, "    %s: %s\n", scalar(key), scalar(values[key]))
	}
}

// shorten returns a unique name of at most 63 characters, which is the limit of a label.
func shorten(name string) string {
	const maxLen, prefixLen = 63, 54
	if len(name) <= maxLen {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:prefixLen], "-") + "-" + hex.EncodeToString(sum[:4])
}
