package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// Validate checks a ClusterSet that has its defaults and gives all findings.
// Each names its path; Load adds the places in the file.
func Validate(s *ClusterSet) diag.List {
	if n := len(s.Spec.Clusters); n > maxClusters {
		return diag.List{{Severity: diag.Error, Code: "too-many", Path: "clusters",
			Summary: fmt.Sprintf("%d clusters, a clusterset can have %d", n, maxClusters)}}
	}
	c := &checker{
		set: s, clusterPaths: s.clusterPaths(), exportPaths: s.exportPaths(), clusters: map[string]int{},
		groups: newGroups(s), book: rulebook{}, links: s.Links(), tally: tally{}, near: map[int]map[int]member{},
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
	c.cables()
	c.members()
	c.prefixes()
	c.betweenClusters()
	c.families()
	c.endpoints()
	c.keys()
	c.dynamicExports()
	c.owners()
	c.exports()
	c.allowWays()
	c.capacity()
	c.list = append(c.list, c.tally.rest()...)
	c.list.Sort()
	return c.list
}

// maxClusters bounds what grows with the pairs of clusters.
const maxClusters = 5000

// maxFindings is how many findings of each severity are told: nobody reads more, and
// each can take as long as its line.
const maxFindings = 200

// tally counts findings by severity.
type tally map[diag.Severity]int

func (t tally) full(s diag.Severity) bool { return t[s] >= maxFindings }

// rest gives findings that stand for those beyond maxFindings.
func (t tally) rest() (out diag.List) {
	for severity, n := range t {
		if n > maxFindings {
			out = append(out, diag.Diagnostic{Severity: severity, Code: "too-many-findings",
				Summary: fmt.Sprintf("%d more %ss are not shown", n-maxFindings, severity)})
		}
	}
	return out
}

// checker collects findings.
type checker struct {
	set          *ClusterSet
	list         diag.List
	tally        tally
	clusterPaths []string
	exportPaths  []string
	clusters     map[string]int         // index by name
	groups       []group                // the clusters' prefixes
	near         map[int]map[int]member // by group and cluster: the cluster's first member there
	book         rulebook
	links        *Links
}

func (c *checker) fail(d diag.Diagnostic) {
	d.Severity = diag.Error
	c.add(d)
}

func (c *checker) warn(d diag.Diagnostic) {
	d.Severity = diag.Warning
	c.add(d)
}

func (c *checker) add(d diag.Diagnostic) {
	if !c.tally.full(d.Severity) {
		c.list = append(c.list, d)
	}
	c.tally[d.Severity]++
}

// related turns paths into the other places of a finding.
func related(paths ...string) []diag.Related {
	out := make([]diag.Related, len(paths))
	for i, p := range paths {
		out[i] = diag.Related{Path: p}
	}
	return out
}

// rules checks what the tags of the types say.
func (c *checker) rules(v reflect.Value, path string) {
	for _, f := range c.book.of(v.Type()) {
		c.rule(f, v.Field(f.index), fieldPath(path, f.name))
	}
}

func (c *checker) rule(f field, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	} else if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		if f.required {
			c.fail(diag.Diagnostic{Code: "required", Path: path, Summary: missing(v), Hint: f.hint})
		}
		if v.Kind() != reflect.Struct {
			return
		}
	}
	if d, two := v.Interface().(DynamicExports); two {
		if v = v.FieldByName("Rules"); d.Alone {
			v = v.Index(0)
		}
	}
	switch {
	case len(f.enum) > 0:
		c.enum(f, v.String(), path)
	case v.Kind() == reflect.Int || v.Type() == durationType:
		c.bounds(f, v, path)
	case v.Kind() == reflect.Map && f.maxText != "":
		for _, key := range v.MapKeys() {
			c.bounds(f, v.MapIndex(key), at(path, key.String()))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		c.items(v, path)
	case v.Kind() == reflect.Struct && !isText(v):
		c.rules(v, path)
	}
}

// items checks a list of structs. Lists of text, such as prefixes, have no rules.
func (c *checker) items(v reflect.Value, path string) {
	item := v.Type().Elem()
	if reflect.PointerTo(item).Implements(textType) {
		return
	}
	naming, fields := namingOf(item), c.book.of(item)
	seen := map[string]bool{}
	for i := range v.Len() {
		parts := make([]string, len(naming))
		for _, f := range fields {
			if at := slices.Index(naming, f.name); at >= 0 {
				parts[at] = v.Index(i).Field(f.index).String()
			}
		}
		c.rules(v.Index(i), at(path, label(seen, joinName(parts...), i)))
	}
}

func missing(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		return "is missing: at least one is needed"
	}
	return "is missing"
}

func (c *checker) enum(f field, value, path string) {
	if slices.Contains(f.enum, value) {
		return
	}
	d := diag.Diagnostic{
		Code: "bad-value", Path: path, Summary: fmt.Sprintf("%q is not one of %s", value, strings.Join(f.enum, ", ")),
	}
	if near := Nearest(value, f.enum); near != "" {
		d.Hint = "did you mean " + near + "?"
	} else if len(f.enum) == 1 {
		d.Summary = fmt.Sprintf("%q is not %s", value, f.enum[0])
	}
	c.fail(d)
}

func (c *checker) bounds(f field, v reflect.Value, path string) {
	if f.maxText == "" || v.Int() >= f.min && v.Int() <= f.max {
		return
	}
	d := outOfRange(v, f)
	d.Path = path
	c.fail(d)
}
