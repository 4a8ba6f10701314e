package apply

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/kubeclient"
)

// OwnFields returns the fields of a live object that hawser apply owns, in the format of the API
// server. It is empty if hawser apply owns none.
func OwnFields(o *unstructured.Unstructured) string {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == kubeclient.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil {
			return entry.FieldsV1.GetRawString()
		}
	}
	return ""
}

// managers returns the managers that own a field of an object outside its status.
func managers(o *unstructured.Unstructured) []string {
	var out []string
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" && !slices.Contains(out, entry.Manager) {
			out = append(out, entry.Manager)
		}
	}
	slices.Sort(out)
	return out
}

// addOwned walks a field set and its value in parallel, and records every leaf of the set in found.
func addOwned(set map[string]any, path []string, value any, found map[string]bool) {
	children := 0
	for name, sub := range set {
		subset, ok := sub.(map[string]any)
		if !ok || name == "." {
			continue
		}
		children++
		step, item, ok := descend(name, value)
		if ok {
			addOwned(subset, append(slices.Clip(path), step), item, found)
		}
	}
	if children > 0 || len(path) == 0 {
		return
	}
	// A field without children in the set is owned as a whole.
	nested := map[string]string{}
	walk(path, value, nested)
	for name := range nested {
		found[name] = true
	}
}

// descend resolves an element of a field set in a value: f:name is a field, k:{...} is the list
// item with these keys, v:value is the item itself.
func descend(element string, value any) (step string, item any, ok bool) {
	prefix, rest, _ := strings.Cut(element, ":")
	switch value := value.(type) {
	case map[string]any:
		item, ok = value[rest]
		return rest, item, ok && prefix == "f"
	case []any:
		var wanted any
		if json.Unmarshal([]byte(rest), &wanted) != nil {
			return "", nil, false
		}
		for i, item := range value {
			if prefix == "k" && hasKeys(item, wanted) || prefix == "v" && text(item) == text(wanted) {
				return "[" + strconv.Itoa(i) + "]", item, true
			}
		}
	}
	return "", nil, false
}

func hasKeys(item, keys any) bool {
	have, ok1 := item.(map[string]any)
	want, ok2 := keys.(map[string]any)
	if !ok1 || !ok2 {
		return false
	}
	for name, v := range want {
		if text(have[name]) != text(v) {
			return false
		}
	}
	return true
}
