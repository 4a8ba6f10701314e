// Package fieldpath builds the paths with which findings and the lock name a field or an item
// of a topology, such as clusters[g1].podCIDRs[0].
package fieldpath

import (
	"slices"
	"strconv"
	"strings"
)

// Items returns the path of each item of the list at path. The label in its brackets is the
// item's name, or its index if the name is empty or an earlier item has the same one.
func Items[T any](path string, items []T, name func(*T) string) []string {
	out := make([]string, len(items))
	seen := make(map[string]bool, len(items))
	for i := range items {
		out[i] = Key(path, Label(seen, name(&items[i]), i))
	}
	return out
}

// Label returns the label of one item and adds its name to seen.
func Label(seen map[string]bool, name string, index int) string {
	if name == "" || seen[name] {
		return strconv.Itoa(index)
	}
	seen[name] = true
	return name
}

// Key appends a bracketed label to a path.
func Key(path, label string) string { return path + "[" + label + "]" }

// Index appends an index to a path.
func Index(path string, index int) string { return Key(path, strconv.Itoa(index)) }

// Name joins the fields that name an item with slashes. It is empty if one of them is.
func Name(parts ...string) string {
	if slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(parts, "/")
}

// Parent returns a path without its last brackets or its last field.
func Parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}

// Child appends a field's name to a path. Paths are relative to spec: spec.domain is
// domain.
func Child(path, name string) string {
	if path == "" || path == "spec" {
		return name
	}
	return path + "." + name
}
