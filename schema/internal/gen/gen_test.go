package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the generated files")

const root = "../../.."

// TestCurrent checks that the generated files match the types.
func TestCurrent(t *testing.T) {
	if *update {
		if err := run(root); err != nil {
			t.Fatal(err)
		}
	}
	files, err := generate(filepath.Join(root, "schema"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(string(want), string(have)); d != "" {
			t.Errorf("%s is not current, run go generate ./schema (-want +have)\n%s", name, d)
		}
	}
}

// TestSchemaAgreesWithLoad checks that the JSON Schema accepts every file that load.Topology
// accepts, and refuses files with a wrong structure.
func TestSchemaAgreesWithLoad(t *testing.T) {
	t.Parallel()
	files, err := generate(filepath.Join(root, "schema"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(files["clusterset.schema.json"], &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clusterset.example.yaml", "docs/clusterset.full.yaml"} {
		example, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if faults := check(t, schema, example); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
	for _, f := range sections(t, "right/all.txtar") {
		if faults := check(t, schema, f.Data); len(faults) > 0 && f.Name != "decommission.yaml" {
			t.Errorf("%s: %v", f.Name, faults)
		}
	}
	for _, f := range sections(t, "wrong/keys.txtar") {
		if faults := check(t, schema, f.Data); len(faults) == 0 {
			t.Errorf("%s: no fault was found", f.Name)
		}
	}
}

func sections(t *testing.T, name string) []txtar.File {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join(root, "schema/load/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(archive.Files, func(f txtar.File) bool { return !strings.HasSuffix(f.Name, ".yaml") })
}

func check(t *testing.T, schema map[string]any, raw []byte) []string {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return faults(schema, doc, "")
}

// faults returns the errors of a value. It supports the part of JSON Schema that jsonSchema writes.
func faults(s map[string]any, v any, path string) []string {
	if v == nil {
		return nil // an empty value is the same as an absent one
	}
	var out []string
	if anyOf, ok := s["anyOf"].([]any); ok && !slices.ContainsFunc(anyOf, func(o any) bool {
		return len(faults(o.(map[string]any), v, path)) == 0
	}) {
		out = append(out, path+": fits none")
	}
	if c, ok := s["const"]; ok && c != v {
		out = append(out, path+": is not the constant")
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		out = append(out, path+": is not in the enumeration")
	}
	switch v := v.(type) {
	case map[string]any:
		if s["anyOf"] == nil {
			out = append(out, objectFaults(s, v, path)...)
		}
	case []any:
		items, ok := s["items"].(map[string]any)
		if low, has := s["minItems"].(float64); !ok && s["anyOf"] == nil || has && len(v) < int(low) {
			out = append(out, path+": wrong list")
		}
		for _, item := range v {
			if ok {
				out = append(out, faults(items, item, path+"[]")...)
			}
		}
	case string:
		if pattern, ok := s["pattern"].(string); s["type"] != nil && s["type"] != "string" || ok && !regexp.MustCompile(pattern).MatchString(v) {
			out = append(out, path+": wrong text")
		}
	case float64:
		low, hasLow := s["minimum"].(float64)
		high, hasHigh := s["maximum"].(float64)
		if s["type"] != nil && s["type"] != "number" && (s["type"] != "integer" || v != float64(int64(v))) || hasLow && v < low || hasHigh && v > high {
			out = append(out, path+": wrong number")
		}
	case bool:
		if s["type"] != "boolean" {
			out = append(out, path+": wrong boolean")
		}
	}
	return out
}

func objectFaults(s, v map[string]any, path string) []string {
	var out []string
	if s["type"] != "object" {
		return []string{path + ": wrong mapping"}
	}
	known, _ := s["properties"].(map[string]any)
	more, free := s["additionalProperties"].(map[string]any)
	for key, value := range v {
		if sub, ok := known[key].(map[string]any); ok {
			out = append(out, faults(sub, value, path+"."+key)...)
		} else if free {
			out = append(out, faults(more, value, path+"."+key)...)
		} else {
			out = append(out, path+"."+key+": unknown")
		}
	}
	required, _ := s["required"].([]any)
	for _, key := range required {
		if _, ok := v[key.(string)]; !ok {
			out = append(out, path+"."+key.(string)+": missing")
		}
	}
	return out
}
