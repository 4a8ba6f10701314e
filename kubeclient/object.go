package kubeclient

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/render"
)

// ID identifies an object. Two IDs that differ only in Version are the same object.
type ID struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// IDOf returns the ID of an object.
func IDOf(o *unstructured.Unstructured) ID {
	k := o.GroupVersionKind()
	return ID{Group: k.Group, Version: k.Version, Kind: k.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String returns a readable form, such as DaemonSet hawser-system/hawser-agent.
func (id ID) String() string { return id.Kind + " " + id.path() }

func (id ID) path() string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "/" + id.Name
}

// Key returns a string that identifies the object independent of the version.
func (id ID) Key() string { return id.Kind + "." + id.Group + " " + id.path() }

// GroupVersionKind returns the kind in the version of the ID.
func (id ID) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: id.Group, Version: id.Version, Kind: id.Kind}
}

// Line returns the form of the inventory, such as apps/v1 DaemonSet hawser-system/hawser-agent.
func (id ID) Line() string {
	version, _ := id.GroupVersionKind().ToAPIVersionAndKind()
	return version + " " + id.String()
}

// ParseLine parses the result of Line.
func ParseLine(line string) (ID, error) {
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

// Kinds with special treatment.
const (
	KindNamespace     = "Namespace"
	KindCRD           = "CustomResourceDefinition"
	KindSecret        = "Secret"
	KindDaemonSet     = "DaemonSet"
	KindServiceExport = "ServiceExport"
)

// orderOf returns the position of a kind in the order of applying: dependencies come first.
// Unlisted kinds are configuration and come before workloads.
func orderOf(kind string) int {
	order := []string{
		KindNamespace, KindCRD, "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ConfigMap", KindSecret, "Service", "NetworkPolicy",
		"", KindDaemonSet, "Deployment", "StatefulSet", KindServiceExport,
	}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return slices.Index(order, "")
}

// CompareIDs compares two IDs in the order in which objects are applied: by kind, then by name.
func CompareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(orderOf(a.Kind), orderOf(b.Kind)), cmp.Compare(a.Key(), b.Key()))
}

// LabelsAndAnnotations returns the labels and annotations of an object in one map.
func LabelsAndAnnotations(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	maps.Copy(out, o.GetLabels())
	maps.Copy(out, o.GetAnnotations())
	return out
}

// ConditionStatus returns the status of a condition, empty if the object has none.
func ConditionStatus(o *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == name {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

// NamespaceID returns the ID of Hawser's namespace.
func NamespaceID() ID { return ID{Version: "v1", Kind: KindNamespace, Name: render.Namespace} }

// Base64 encodes a value for the data of a Secret.
func Base64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Label selectors of Hawser's objects, independent of the tool that applied them.
const (
	LabelRendered       = "app.kubernetes.io/part-of=hawser"
	LabelByAgents       = "app.kubernetes.io/managed-by=hawser"
	LabelEndpointSlices = "endpointslice.kubernetes.io/managed-by=hawser.dev"
)

// MCSKind returns a kind of the Multi-Cluster Services API.
func MCSKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: kind}
}

// Normalize returns a copy with the types of unstructured objects: int64 for whole numbers.
func Normalize(body map[string]any) map[string]any {
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
