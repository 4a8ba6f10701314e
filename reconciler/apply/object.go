// Package apply brings a rendered tree into clusters without Flux or Argo CD:
// server-side apply with one field manager, an inventory of what was applied, so
// that what leaves the tree is deleted, and a plan that is computed once and then
// printed or carried out. It also takes Hawser out of a cluster again.
package apply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/kustomize"
)

// ID names one object. Two IDs that differ only in Version are the same object.
type ID struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// IDOf gives the name of an object.
func IDOf(o *unstructured.Unstructured) ID {
	k := o.GroupVersionKind()
	return ID{Group: k.Group, Version: k.Version, Kind: k.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String is how people read it: DaemonSet hawser-system/hawser-agent.
func (id ID) String() string { return id.Kind + " " + id.path() }

func (id ID) path() string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "/" + id.Name
}

// key tells objects apart whatever their version is.
func (id ID) key() string { return id.Kind + "." + id.Group + " " + id.path() }

func (id ID) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: id.Group, Version: id.Version, Kind: id.Kind}
}

// line is the form of the inventory: apps/v1 DaemonSet hawser-system/hawser-agent.
func (id ID) line() string {
	version, _ := id.kind().ToAPIVersionAndKind()
	return version + " " + id.String()
}

// readLine reads what line wrote.
func readLine(line string) (ID, error) {
	parts := strings.Fields(line)
	if len(parts) != 3 {
		return ID{}, fmt.Errorf("inventory line %q is not \"version kind name\"", line)
	}
	version, err := schema.ParseGroupVersion(parts[0])
	if err != nil {
		return ID{}, fmt.Errorf("inventory line %q: %w", line, err)
	}
	namespace, name, ok := strings.Cut(parts[2], "/")
	if !ok {
		namespace, name = "", parts[2]
	}
	return ID{Group: version.Group, Version: version.Version, Kind: parts[1], Namespace: namespace, Name: name}, nil
}

// Kinds that are treated in a way of their own.
const (
	kindNamespace     = "Namespace"
	kindCRD           = "CustomResourceDefinition"
	kindSecret        = "Secret"
	kindDaemonSet     = "DaemonSet"
	kindServiceExport = "ServiceExport"
)

// orderOf gives the place of a kind in the order of applying: what others need comes
// first. Kinds that it does not name come before workloads: they are settings.
func orderOf(kind string) int {
	order := []string{
		kindNamespace, kindCRD, "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ConfigMap", kindSecret, "Service", "NetworkPolicy",
		"", kindDaemonSet, "Deployment", "StatefulSet", kindServiceExport,
	}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return slices.Index(order, "")
}

// compareIDs orders what is applied: by kind, then by name.
func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(orderOf(a.Kind), orderOf(b.Kind)), cmp.Compare(a.key(), b.key()))
}

// ErrNoCluster is returned for a cluster that a tree has no folder of.
var ErrNoCluster = errors.New("the tree has no such cluster")

// Objects builds a cluster's folders of a rendered tree, as kubectl apply -k
// does, in the order in which they are applied.
func Objects(tree render.Tree, cluster string) ([]*unstructured.Unstructured, error) {
	dir := render.ClusterDir(cluster)
	if tree[dir+"/kustomization.yaml"] == nil {
		return nil, fmt.Errorf("%w: %s (there is no %s/kustomization.yaml)", ErrNoCluster, cluster, dir)
	}
	out, err := objectsIn(tree, dir)
	if err != nil {
		return nil, err
	}
	if dir := render.ExportsDir(cluster); tree[dir+"/kustomization.yaml"] != nil {
		exports, err := objectsIn(tree, dir)
		if err != nil {
			return nil, err
		}
		out = append(out, exports...)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return compareIDs(IDOf(a), IDOf(b)) })
	return out, nil
}

func objectsIn(tree render.Tree, dir string) ([]*unstructured.Unstructured, error) {
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
		out = append(out, &unstructured.Unstructured{Object: normal(body)})
	}
	return out, nil
}

// normal gives a copy with the types that unstructured objects have: int64 for
// whole numbers.
func normal(body map[string]any) map[string]any {
	out, _ := normalValue(body).(map[string]any)
	return out
}

func normalValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, field := range v {
			out[name] = normalValue(field)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normalValue(v[i])
		}
		return out
	case int:
		return int64(v)
	}
	return v
}

// Clusters names the clusters of a rendered tree in order.
func Clusters(tree render.Tree) []string {
	var out []string
	for _, path := range tree.Paths() {
		rest, inside := strings.CutPrefix(path, "clusters/")
		if name, file, ok := strings.Cut(rest, "/"); inside && ok && file == "kustomization.yaml" {
			out = append(out, name)
		}
	}
	return out
}
