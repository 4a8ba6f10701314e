package apply

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
)

// maxValue is the maximum number of printed characters of a value. For longer values, size and
// digest are printed.
const maxValue = 120

// view is one side of an object as input of the differ. Both sides have the same fields in the same
// order.
type view struct {
	key    string
	fields []diff.Field
}

// Key identifies the object.
func (v view) Key() string { return v.key }

// Fields returns the fields of this side. It has the fields of both sides; missing ones are empty.
func (v view) Fields() []diff.Field { return v.fields }

// views returns the two sides of an object. A side may be nil.
func views(id kubeclient.ID, want, have *unstructured.Unstructured) (w, h view) {
	desired, existing := leaves(want), leaves(have)
	all := maps.Clone(desired)
	maps.Copy(all, existing)
	w, h = view{key: id.Key()}, view{key: id.Key()}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		secret := id.Kind == kubeclient.KindSecret && !isPublic(name)
		w.fields = append(w.fields, diff.Field{Name: name, Value: desired[name], Secret: secret})
		h.fields = append(h.fields, diff.Field{Name: name, Value: existing[name], Secret: secret})
	}
	return w, h
}

// isPublic reports whether a field of a Secret may be printed. The annotation
// last-applied-configuration of kubectl is a copy of the whole object.
func isPublic(name string) bool {
	return name == "type" || name == "immutable" ||
		strings.HasPrefix(name, "metadata.") && !strings.Contains(name, "last-applied-configuration")
}

// isUserField reports whether users write a field. The API server maintains the others.
func isUserField(path []string) bool {
	if path[0] == "status" || path[0] == "apiVersion" || path[0] == "kind" {
		return false
	}
	if path[0] != "metadata" {
		return true
	}
	switch path[1] {
	case "labels", "ownerReferences", "finalizers":
		return true
	case "annotations":
		// The controller also counts generations of a DaemonSet here.
		return len(path) < 3 || path[2] != "deprecated.daemonset.template.generation"
	}
	return false
}

// leaves returns the values of an object by their paths.
func leaves(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	if o == nil {
		return out
	}
	for name, v := range o.Object {
		walk([]string{name}, v, out)
	}
	return out
}

func walk(path []string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			walk(append(slices.Clip(path), name), field, out)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, item := range v {
			walk(append(slices.Clip(path), "["+strconv.Itoa(i)+"]"), item, out)
		}
		if len(v) > 0 {
			return
		}
	}
	if len(path) < 2 && path[0] == "metadata" || !isUserField(path) {
		return
	}
	out[joinPath(path)] = text(v)
}

// joinPath formats a path, such as spec.template.containers[0].image. A name that contains a dot is
// quoted.
func joinPath(path []string) string {
	var out strings.Builder
	for i, step := range path {
		switch {
		case strings.HasPrefix(step, "["):
		case i > 0 && strings.ContainsAny(step, "./[] "):
			step = "[" + strconv.Quote(step) + "]"
		case i > 0:
			out.WriteByte('.')
		}
		out.WriteString(step)
	}
	return out.String()
}

func text(v any) string {
	var out string
	switch v := v.(type) {
	case string:
		if out = v; strings.ContainsAny(v, "\n\t") || v == "" {
			out = strconv.Quote(v)
		}
	case nil:
		return "null"
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		out = string(raw)
	}
	if len(out) > maxValue {
		return fmt.Sprintf("(%d bytes, sha256 %.8x)", len(out), sha256.Sum256([]byte(out)))
	}
	return out
}
