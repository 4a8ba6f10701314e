package plan

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
)

// edit is one difference between two topologies.
type edit struct {
	path       string // as in document.Source; the previous path if deleted
	op         diff.Op
	have, want string
	cited      bool // an entry cites it
}

// edits compares the topologies of two trees. known is false if a tree has no topology.
func edits(want, have render.Tree) (list []edit, known bool) {
	var sides [2]any
	if sameFile(want, have, render.TopologyText) {
		_, known = want[render.TopologyText]
		return nil, known
	}
	for i, tree := range []render.Tree{want, have} {
		// Without a readable topology, file entries list the differences.
		if raw, ok := tree[render.TopologyText]; !ok || json.Unmarshal(raw, &sides[i]) != nil {
			return nil, false
		}
	}
	compareValues(&list, "", sides[0], sides[1])
	return list, true
}

// compareValues appends the differences at a path and below it. nil means that the value is absent.
func compareValues(out *[]edit, path string, want, have any) {
	wantMap, isMap := want.(map[string]any)
	haveMap, wasMap := have.(map[string]any)
	hasKeys := len(wantMap)+len(haveMap) > 0 // an added or removed {} has nothing below it
	if isMap && wasMap || (isMap && have == nil || wasMap && want == nil) && hasKeys && !isItem(path) {
		for _, key := range slices.Sorted(maps.Keys(union(wantMap, haveMap))) {
			compareValues(out, childPath(path, key), wantMap[key], haveMap[key])
		}
		return
	}
	wantList, isList := want.([]any)
	haveList, wasList := have.([]any)
	if (isList || want == nil) && (wasList || have == nil) && (isList || wasList) && !isItem(path) {
		compareLists(out, path, wantList, haveList)
		return
	}
	w, h := formatJSON(want), formatJSON(have)
	change := edit{path: path, op: diff.Update, want: printable(w), have: printable(h)}
	switch {
	case w == h:
		return
	case have == nil:
		change.op = diff.Create
	case want == nil:
		change.op = diff.Delete
	}
	*out = append(*out, change)
}

func compareLists(out *[]edit, path string, want, have []any) {
	if name := itemNamer(path); name != nil {
		w, h := map[string]any{}, map[string]any{}
		for _, v := range want {
			w[name(v)] = v
		}
		for _, v := range have {
			h[name(v)] = v
		}
		for _, key := range slices.Sorted(maps.Keys(union(w, h))) {
			if !reflect.DeepEqual(w[key], h[key]) { // fast: most items of a long list are equal
				compareValues(out, path+"["+printable(key)+"]", w[key], h[key])
			}
		}
		return
	}
	if allTexts := !slices.ContainsFunc(slices.Concat(want, have), func(v any) bool {
		_, text := v.(string)
		return !text
	}); allTexts { // compared as whole values
		compareTexts(out, path, want, have)
		return
	}
	// Skip the common items before and after the change.
	first := 0
	for first < min(len(want), len(have)) && formatJSON(want[first]) == formatJSON(have[first]) {
		first++
	}
	last := 0
	for last < min(len(want), len(have))-first && formatJSON(want[len(want)-1-last]) == formatJSON(have[len(have)-1-last]) {
		last++
	}
	for i := first; i < max(len(want), len(have))-last; i++ {
		var w, h any
		if i < len(want)-last {
			w = want[i]
		}
		if i < len(have)-last {
			h = have[i]
		}
		compareValues(out, path+"["+strconv.Itoa(i)+"]", w, h)
	}
}

func compareTexts(out *[]edit, path string, want, have []any) {
	before := len(*out)
	for _, v := range want {
		if !slices.Contains(have, v) {
			*out = append(*out, edit{path: path + "[" + printable(formatJSON(v)) + "]", op: diff.Create, want: printable(formatJSON(v))})
		}
	}
	for _, v := range have {
		if !slices.Contains(want, v) {
			*out = append(*out, edit{path: path + "[" + printable(formatJSON(v)) + "]", op: diff.Delete, have: printable(formatJSON(v))})
		}
	}
	if len(*out) == before && !slices.Equal(want, have) {
		*out = append(*out, edit{path: path, op: diff.Update, want: printable(formatJSON(want)), have: printable(formatJSON(have))})
	}
}

// printable quotes a text with control characters, for terminals. The text is untrusted: anyone
// with push access can write to the publish branch.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// isItem reports whether a path refers to an item of a list. Items are added or removed as a whole.
func isItem(path string) bool { return strings.HasSuffix(path, "]") }

// childPath returns the path of a key. Keys of the top and of spec have no prefix. Keys that users
// choose are in brackets.
func childPath(path, key string) string {
	key = printable(key)
	if path == "" || path == "spec" {
		return key
	}
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "matchLabels", "weights", "labels", "annotations":
		return path + "[" + key + "]"
	}
	return path + "." + key
}

// itemNamer returns the function that returns an item's name in a list; nil = use the index.
func itemNamer(path string) func(any) string {
	text := func(v any, key string) string {
		m, _ := v.(map[string]any)
		s, _ := m[key].(string)
		return s
	}
	switch {
	case path == "exports":
		return func(v any) string { return text(v, "namespace") + "/" + text(v, "name") }
	case path == "clusters", strings.HasPrefix(path, "clusters[") && (strings.HasSuffix(path, "].gateways") || strings.HasSuffix(path, "].egress")):
		return func(v any) string { return text(v, "name") }
	}
	return nil
}

func union(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	maps.Copy(out, b)
	return out
}

// formatJSON returns a value as text. Equal values have equal texts.
func formatJSON(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	raw, _ := json.Marshal(v) // it was read from JSON
	return string(raw)
}

// pathPrefixes returns the prefixes of a path, from its first field to the path itself.
func pathPrefixes(path string) []string {
	var out []string
	for offset := 0; offset < len(path); {
		if path[offset] == '[' {
			end := strings.IndexByte(path[offset:], ']')
			if end < 0 {
				break
			}
			offset += end + 1
		} else if end := strings.IndexAny(path[offset+1:], ".["); end >= 0 {
			offset += end + 1
		} else {
			offset = len(path)
		}
		out = append(out, path[:offset])
	}
	return out
}

// wildcardPath returns a path with [*] instead of its first item, as a pattern for all items.
func wildcardPath(path string) string {
	open := strings.IndexByte(path, '[')
	if open < 0 {
		return path
	}
	end := strings.IndexByte(path[open:], ']')
	if end < 0 {
		return path
	}
	return path[:open] + "[*]" + path[open+end+1:]
}
