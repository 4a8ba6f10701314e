// Package ownership compares two versions of a topology and finds the owners of each difference.
package ownership

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/tags"
)

// Version is the topology of one commit.
type Version struct {
	Set    *schema.ClusterSet // from load.Topology or load.Decode, without errors
	Source *document.Source
}

// Change is one difference between two versions of a topology.
type Change struct {
	Action string   // adds, changes or removes
	Item   string   // description, such as export shop/web: allow
	Path   string   // the same as a topology path
	Pos    diag.Pos // in the newer version; of a removed item in the older one
	// Owners are the patterns of principals that may make the change, in addition to
	// trust.owners, according to the older version.
	Owners []string
}

// Diff returns the differences in meaning between two versions, defaults included, sorted by path.
// Formatting and the order of items do not matter. Diff fails if names are invalid or occur twice,
// because items are then ambiguous.
func Diff(have, want Version) ([]Change, error) {
	before, err := collectLeaves(have.Set, have.Set)
	if err != nil {
		return nil, fmt.Errorf("read what %s means: %w", have.Source.File, err)
	}
	after, err := collectLeaves(want.Set, have.Set)
	if err != nil {
		return nil, fmt.Errorf("read what %s means: %w", want.Source.File, err)
	}
	changes, err := diff.Compute(after, before)
	if err != nil {
		return nil, fmt.Errorf("compare %s with %s: %w", want.Source.File, have.Source.File, err)
	}
	var out []Change
	itemPrefix := "\x00" // prefix of an item that was added or removed with its content
	for _, c := range changes {
		l, from := c.Want, want.Source
		if c.Op == diff.Delete || c.Op == diff.Update && !want.Source.Has(c.Want.path) && have.Source.Has(c.Have.path) {
			l, from = c.Have, have.Source
		}
		if strings.HasPrefix(l.key, itemPrefix+".") || c.Op == diff.Delete && l.shared {
			continue
		}
		action := "changes"
		if l.item && c.Op == diff.Create {
			action, itemPrefix = "adds", l.key
		} else if l.item {
			action, itemPrefix = "removes", l.key
		}
		out = append(out, Change{Action: action, Item: l.text(), Path: l.path, Pos: from.Pos(l.path), Owners: l.owners})
	}
	return out, nil
}

// leaf is one value of a topology, or the existence of an item.
type leaf struct {
	key, path, value   string
	itemText, itemPath string   // description and path of the item that contains it
	owners             []string // see Change
	item               bool     // the existence of an item
	shared             bool     // a gateway shares an endpoint with another cluster
}

// Key returns the path of the leaf.
func (l leaf) Key() string { return l.key }

// Fields returns the value of the leaf.
func (l leaf) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: l.value}} }

func (l leaf) text() string {
	switch {
	case l.itemText == "":
		return l.path
	case l.path == l.itemPath:
		return l.itemText
	}
	return l.itemText + ": " + strings.TrimPrefix(l.path[len(l.itemPath):], ".")
}

// collectLeaves returns all values of a topology. The former version decides who owns each.
func collectLeaves(s, base *schema.ClusterSet) ([]leaf, error) {
	w := &leafCollector{base: base, tagCache: tags.Cache{}, clusters: map[string][]string{}, namespaces: map[string][]string{}}
	for i := range base.Spec.Clusters {
		w.clusters[base.Spec.Clusters[i].Name] = base.Spec.Clusters[i].Owners
	}
	w.addStruct(reflect.ValueOf(s).Elem(), position{})
	w.addSharedEndpoints(s)
	return w.leaves, w.err
}

type leafCollector struct {
	base     *schema.ClusterSet
	tagCache tags.Cache
	leaves   []leaf
	err      error
	// Owners by the former version; of namespaces by name, computed on demand.
	clusters, namespaces map[string][]string
}

func (w *leafCollector) namespaceOwners(pattern string) []string {
	owners, known := w.namespaces[pattern]
	if !known {
		owners = w.base.NamespaceOwners(pattern)
		w.namespaces[pattern] = owners
	}
	return owners
}

// position is the position of the walk.
type position struct {
	path               string
	itemText, itemPath string
	owners             []string // of the cluster or namespace
	ownerMayChange     bool     // a tag of the field grants them everything below
}

func (w *leafCollector) addLeaf(at position, value string, item bool) {
	l := leaf{key: at.path, path: at.path, value: value, itemText: at.itemText,
		itemPath: at.itemPath, item: item}
	if at.ownerMayChange {
		l.owners = at.owners
	}
	w.leaves = append(w.leaves, l)
}

func (w *leafCollector) addStruct(v reflect.Value, at position) {
	for _, f := range w.tagCache.Of(v.Type()) {
		below := at
		below.path = fieldpath.Child(at.path, f.Name)
		below.ownerMayChange = at.ownerMayChange || f.Owner != ""
		w.addValue(v.Field(f.Index), below)
	}
}

func (w *leafCollector) addValue(v reflect.Value, at position) {
	switch {
	case v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0:
	case v.Type() == reflect.TypeFor[*schema.DynamicExports]():
		w.addRules(v.Interface().(*schema.DynamicExports), at)
	case v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct: // empty is not missing
		w.addLeaf(at, "there", true)
		w.addStruct(v.Elem(), at)
	case v.Kind() == reflect.Struct && !tags.IsText(v) && v.Type() != schema.HostnamesType:
		w.addStruct(v, at)
	case v.Kind() == reflect.Slice && tags.Naming(v.Type().Elem()) != nil:
		for i := range v.Len() {
			w.addItem(v.Index(i), at)
		}
	default:
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			w.err = cmp.Or(w.err, fmt.Errorf("%s: %w", at.path, err))
		}
		w.addLeaf(at, string(raw), false)
	}
}

// addItem is an item of a list with named items.
func (w *leafCollector) addItem(v reflect.Value, at position) {
	naming := tags.Naming(v.Type())
	parts := make([]string, len(naming))
	for _, f := range w.tagCache.Of(v.Type()) {
		if i := slices.Index(naming, f.Name); i >= 0 {
			parts[i] = v.Field(f.Index).String()
		}
	}
	name := strings.Join(parts, "/")
	if i := slices.IndexFunc(parts, func(p string) bool { return !fabric.IsLabel(p) }); i >= 0 {
		w.err = cmp.Or(w.err, fmt.Errorf("%s: %q is no name", at.path, name))
	}
	at.path += "[" + name + "]"
	switch v.Type() {
	case reflect.TypeFor[schema.Cluster]():
		at.itemText, at.itemPath, at.owners = "cluster "+name, at.path, w.clusters[name]
	case reflect.TypeFor[schema.Export]():
		at.itemText, at.itemPath, at.owners = "export "+name, at.path, w.namespaceOwners(parts[0])
	}
	w.addLeaf(at, "there", true)
	w.addStruct(v, at)
}

// addRules records, for each pattern of namespaces, the clusters that may export from there.
func (w *leafCollector) addRules(d *schema.DynamicExports, at position) {
	w.addLeaf(at, "there", true)
	type clusterSet struct {
		path     string
		any      bool
		clusters []string
	}
	byPattern := map[string]clusterSet{}
	for i, rule := range d.Rules {
		path := at.path
		if !d.Alone {
			path = fieldpath.Index(path, i)
		}
		for j, pattern := range rule.Namespaces {
			have := byPattern[pattern]
			have.path = cmp.Or(have.path, fieldpath.Index(path+".namespaces", j))
			have.any = have.any || len(rule.Clusters) == 0
			have.clusters = append(have.clusters, rule.Clusters...)
			byPattern[pattern] = have
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(byPattern)) {
		r := byPattern[pattern]
		slices.Sort(r.clusters)
		w.leaves = append(w.leaves, leaf{key: at.path + "." + pattern, path: r.path, itemPath: r.path,
			itemText: "dynamic exports of namespace " + pattern,
			value:    fmt.Sprint(r.any, slices.Compact(r.clusters)), owners: w.namespaceOwners(pattern)})
	}
}

// addSharedEndpoints records endpoints that gateways of several clusters use. Only owners of
// everything may add a gateway at an endpoint of another cluster.
func (w *leafCollector) addSharedEndpoints(s *schema.ClusterSet) {
	users := map[string]map[string]bool{} // clusters by host
	each := func(do func(c *schema.Cluster, path, host string)) {
		for i := range s.Spec.Clusters {
			c := &s.Spec.Clusters[i]
			for _, g := range c.Gateways {
				for k, text := range g.Endpoints {
					host := text
					if e, err := fabric.ParseEndpoint(text); err == nil {
						host = e.Host()
					}
					do(c, fieldpath.Index(fmt.Sprintf("clusters[%s].gateways[%s].endpoints", c.Name, g.Name), k), host)
				}
			}
		}
	}
	each(func(c *schema.Cluster, _, host string) {
		if users[host] == nil {
			users[host] = map[string]bool{}
		}
		users[host][c.Name] = true
	})
	added := map[string]bool{}
	each(func(c *schema.Cluster, path, host string) {
		key := "shared " + host + " " + c.Name
		if len(users[host]) < 2 || added[key] {
			return
		}
		added[key] = true
		w.leaves = append(w.leaves, leaf{key: key, path: path, value: host, shared: true,
			itemText: "cluster " + c.Name + ": endpoint " + host + ", which another cluster has",
			itemPath: path})
	})
}
