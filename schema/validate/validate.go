// Package validate checks a topology after defaulting. Findings have paths; package load adds
// positions.
package validate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/capacity"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/linkconfig"
	"hawser.dev/hawser/schema/overlap"
	"hawser.dev/hawser/schema/syntax"
	"hawser.dev/hawser/schema/tags"
)

// Topology checks a ClusterSet after defaulting and returns all findings with paths.
// load.Topology adds the positions in the file.
func Topology(s *schema.ClusterSet) diag.List {
	if n := len(s.Spec.Clusters); n > maxClusters {
		return diag.List{{Severity: diag.Error, Code: "too-many", Path: "clusters",
			Summary: fmt.Sprintf("%d clusters, a clusterset can have %d", n, maxClusters)}}
	}
	c := &checker{
		set: s, clusterPaths: s.ClusterPaths(), exportPaths: s.ExportPaths(), clusters: map[string]int{},
		groups: overlap.GroupsOf(s), fields: tags.Cache{}, links: linkconfig.Resolve(s),
	}
	for i := range s.Spec.Clusters {
		name := s.Spec.Clusters[i].Name
		if _, taken := c.clusters[name]; !taken && name != "" {
			c.clusters[name] = i
		}
	}
	c.rules(reflect.ValueOf(s).Elem(), "")
	c.settings()
	c.connectivity()
	c.linkSettings()
	c.tunnels()
	c.members()
	c.prefixes()
	overlap.Check(&c.Findings, s, c.groups)
	c.checkFamilies()
	c.endpoints()
	c.keys()
	c.dynamicExports()
	c.owners()
	c.exports()
	c.checkAllowPaths()
	capacity.Check(&c.Findings, s, c.clusterPaths)
	c.List = append(c.List, c.Tally.Overflow()...)
	c.List.Sort()
	return c.List
}

// maxClusters bounds work and memory that grow with the pairs of clusters.
const maxClusters = 5000

// checker collects findings.
type checker struct {
	set *schema.ClusterSet
	diag.Findings
	clusterPaths []string
	exportPaths  []string
	clusters     map[string]int  // index by name
	groups       []overlap.Group // the clusters' prefixes
	fields       tags.Cache
	links        *linkconfig.Settings
}

// rules checks the rules in the struct tags.
func (c *checker) rules(v reflect.Value, path string) {
	for _, f := range c.fields.Of(v.Type()) {
		c.rule(f, v.Field(f.Index), fieldpath.Child(path, f.Name))
	}
}

func (c *checker) rule(f tags.Field, v reflect.Value, path string) {
	if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		switch {
		case f.Required && v.Kind() == reflect.Slice:
			c.Fail("required", path, "is missing: at least one is needed", f.Hint)
		case f.Required:
			c.Fail("required", path, "is missing", f.Hint)
		}
		if v.Kind() != reflect.Struct {
			return
		}
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if d, two := v.Interface().(schema.DynamicExports); two {
		if v = v.FieldByName("Rules"); d.Alone {
			v = v.Index(0)
		}
	}
	switch {
	case len(f.Enum) > 0:
		c.enum(f, v.String(), path)
	case v.Kind() == reflect.Int || v.Type() == tags.DurationType:
		c.bounds(f, v, path)
	case v.Kind() == reflect.Float64:
		if degrees := v.Float(); degrees < float64(f.Min) || degrees > float64(f.Max) {
			c.Fail("out-of-range", path, tags.OutOfRange(v, f), "")
		}
	case v.Kind() == reflect.Map && f.MaxText != "":
		for _, key := range v.MapKeys() {
			c.bounds(f, v.MapIndex(key), fieldpath.Key(path, key.String()))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		c.items(v, path)
	case v.Kind() == reflect.Struct && !tags.IsText(v):
		c.rules(v, path)
	}
}

// items checks a list of structs. Lists of text, such as prefixes, have no rules.
func (c *checker) items(v reflect.Value, path string) {
	item := v.Type().Elem()
	if reflect.PointerTo(item).Implements(tags.TextType) {
		return
	}
	naming, fields := tags.Naming(item), c.fields.Of(item)
	seen := map[string]bool{}
	for i := range v.Len() {
		parts := make([]string, len(naming))
		for _, f := range fields {
			if at := slices.Index(naming, f.Name); at >= 0 {
				parts[at] = v.Index(i).Field(f.Index).String()
			}
		}
		c.rules(v.Index(i), fieldpath.Key(path, fieldpath.Label(seen, fieldpath.Name(parts...), i)))
	}
}

func (c *checker) enum(f tags.Field, value, path string) {
	if slices.Contains(f.Enum, value) {
		return
	}
	summary, hint := fmt.Sprintf("%q is not one of %s", value, strings.Join(f.Enum, ", ")), ""
	if near := syntax.Nearest(value, f.Enum); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(f.Enum) == 1 {
		summary = fmt.Sprintf("%q is not %s", value, f.Enum[0])
	}
	c.Fail("bad-value", path, summary, hint)
}

func (c *checker) bounds(f tags.Field, v reflect.Value, path string) {
	if f.MaxText != "" && (v.Int() < f.Min || v.Int() > f.Max) {
		c.Fail("out-of-range", path, tags.OutOfRange(v, f), "")
	}
}

// Tags checks a struct against its tags.
func Tags(v reflect.Value, book tags.Cache) diag.List {
	c := checker{fields: book}
	c.rules(v, "")
	return append(c.List, c.Tally.Overflow()...)
}
