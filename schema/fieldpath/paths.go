// Package fieldpath makes the paths by which findings and the lock name a part of a topology:
// clusters[g1].podCIDRs[0].
package fieldpath

import (
	"slices"
	"strconv"
	"strings"
)

// Items gives the path of each item of the list at path. In its brackets stands its name, or its
// index when it has none or an earlier item has the same.
func Items[T any](path string, items []T, name func(*T) string) []string {
	out := make([]string, len(items))
	seen := make(map[string]bool, len(items))
	for i := range items {
		out[i] = Key(path, Label(seen, name(&items[i]), i))
	}
	return out
}

// Label gives what stands in the brackets of one item, and notes its name in seen.
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

// Name makes one name of the fields that name an item; it is empty when one
// of them is.
func Name(parts ...string) string {
	if slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(parts, "/")
}

// Parent cuts the last part off a path: the last brackets, or the last field.
func Parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}

// Child appends a field's name to a path. The body of the document is the
// top of all paths: spec.domain is domain.
func Child(path, name string) string {
	if path == "" || path == "spec" {
		return name
	}
	return path + "." + name
}
