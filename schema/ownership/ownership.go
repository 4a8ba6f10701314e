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
	Set    *schema.ClusterSet // of load.Topology or load.Decode, without errors
	Source *document.Source
}

// Change is one difference between two versions of a topology.
type Change struct {
	Action string   // adds, changes or removes
	Item   string   // description, such as export shop/web: allow
	Path   string   // the same as a topology path
	Pos    diag.Pos // in the newer version; of a removed item in the former one
	// Owners are the patterns of principals that may make the change, in addition to
	// trust.owners, according to the former version.
	Owners []string
}

// Diff returns the differences in meaning between two versions, defaults included, sorted by path.
// Formatting and the order of items do not matter. Diff fails if names are invalid or occur twice,
// because items are then ambiguous.
func Diff(have, want Version) ([]Change, error) {
	former, err := leavesOf(have.Set, have.Set)
	if err != nil {
		return nil, fmt.Errorf("read what %s means: %w", have.Source.File, err)
	}
	latter, err := leavesOf(want.Set, have.Set)
	if err != nil {
		return nil, fmt.Errorf("read what %s means: %w", want.Source.File, err)
	}
	changes, err := diff.Compute(latter, former)
	if err != nil {
		return nil, fmt.Errorf("compare %s with %s: %w", want.Source.File, have.Source.File, err)
	}
	var out []Change
	whole := "\x00" // prefix of an item that was added or removed with its content
	for _, c := range changes {
		l, from := c.Want, want.Source
		if c.Op == diff.Delete || c.Op == diff.Update && !want.Source.Has(c.Want.path) && have.Source.Has(c.Have.path) {
			l, from = c.Have, have.Source
		}
		if strings.HasPrefix(l.key, whole+".") || c.Op == diff.Delete && l.shared {
			continue
		}
		did := "changes"
		if l.item && c.Op == diff.Create {
			did, whole = "adds", l.key
		} else if l.item {
			did, whole = "removes", l.key
		}
		out = append(out, Change{Action: did, Item: l.text(), Path: l.path, Pos: from.Pos(l.path), Owners: l.owners})
	}
	return out, nil
}

// leaf is one value of a topology, or the existence of an item.
type leaf struct {
	key, path, value string
	within, of       string   // description and path of the item that contains it
	owners           []string // see Change
	item             bool     // the existence of an item
	shared           bool     // a gateway shares an endpoint with another cluster
}

// Key returns the path of the leaf.
func (l leaf) Key() string { return l.key }

// Fields returns the value of the leaf.
func (l leaf) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: l.value}} }

func (l leaf) text() string {
	switch {
	case l.within == "":
		return l.path
	case l.path == l.of:
		return l.within
	}
	return l.within + ": " + strings.TrimPrefix(l.path[len(l.of):], ".")
}

// leavesOf returns all values of a topology. The former version decides who owns each.
func leavesOf(s, former *schema.ClusterSet) ([]leaf, error) {
	w := &leafWalk{former: former, book: tags.Cache{}, clusters: map[string][]string{}, namespaces: map[string][]string{}}
	for i := range former.Spec.Clusters {
		w.clusters[former.Spec.Clusters[i].Name] = former.Spec.Clusters[i].Owners
	}
	w.object(reflect.ValueOf(s).Elem(), spot{})
	w.sharedEndpoints(s)
	return w.leaves, w.err
}

type leafWalk struct {
	former *schema.ClusterSet
	book   tags.Cache
	leaves []leaf
	err    error
	// Owners by the former version; of namespaces by name, computed on demand.
	clusters, namespaces map[string][]string
}

func (w *leafWalk) namespaceOwners(pattern string) []string {
	owners, known := w.namespaces[pattern]
	if !known {
		owners = w.former.NamespaceOwners(pattern)
		w.namespaces[pattern] = owners
	}
	return owners
}

// spot is the position of the walk.
type spot struct {
	path       string
	within, of string
	owners     []string // of the cluster or namespace
	granted    bool     // a tag of the field grants them everything below
}

func (w *leafWalk) add(at spot, value string, item bool) {
	l := leaf{key: at.path, path: at.path, value: value, within: at.within, of: at.of, item: item}
	if at.granted {
		l.owners = at.owners
	}
	w.leaves = append(w.leaves, l)
}

func (w *leafWalk) object(v reflect.Value, at spot) {
	for _, f := range w.book.Of(v.Type()) {
		below := at
		below.path, below.granted = fieldpath.Child(at.path, f.Name), at.granted || f.Owner != ""
		w.value(v.Field(f.Index), below)
	}
}

func (w *leafWalk) value(v reflect.Value, at spot) {
	switch {
	case v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0:
	case v.Type() == reflect.TypeFor[*schema.DynamicExports]():
		w.rules(v.Interface().(*schema.DynamicExports), at)
	case v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct: // empty is not missing
		w.add(at, "there", true)
		w.object(v.Elem(), at)
	case v.Kind() == reflect.Struct && !tags.IsText(v) && v.Type() != schema.HostnamesType:
		w.object(v, at)
	case v.Kind() == reflect.Slice && tags.Naming(v.Type().Elem()) != nil:
		for i := range v.Len() {
			w.item(v.Index(i), at)
		}
	default:
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			w.err = cmp.Or(w.err, fmt.Errorf("%s: %w", at.path, err))
		}
		w.add(at, string(raw), false)
	}
}

// item is an item of a list with named items.
func (w *leafWalk) item(v reflect.Value, at spot) {
	naming := tags.Naming(v.Type())
	parts := make([]string, len(naming))
	for _, f := range w.book.Of(v.Type()) {
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
		at.within, at.of, at.owners = "cluster "+name, at.path, w.clusters[name]
	case reflect.TypeFor[schema.Export]():
		at.within, at.of, at.owners = "export "+name, at.path, w.namespaceOwners(parts[0])
	}
	w.add(at, "there", true)
	w.object(v, at)
}

// rules records, for each pattern of namespaces, the clusters that may export from there.
func (w *leafWalk) rules(d *schema.DynamicExports, at spot) {
	w.add(at, "there", true)
	type right struct {
		path    string
		any     bool
		keepers []string
	}
	byPattern := map[string]right{}
	for i, rule := range d.Rules {
		path := at.path
		if !d.Alone {
			path = fieldpath.Index(path, i)
		}
		for j, pattern := range rule.Namespaces {
			have := byPattern[pattern]
			have.path = cmp.Or(have.path, fieldpath.Index(path+".namespaces", j))
			have.any = have.any || len(rule.Clusters) == 0
			have.keepers = append(have.keepers, rule.Clusters...)
			byPattern[pattern] = have
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(byPattern)) {
		r := byPattern[pattern]
		slices.Sort(r.keepers)
		w.leaves = append(w.leaves, leaf{key: at.path + "." + pattern, path: r.path, of: r.path,
			within: "dynamic exports of namespace " + pattern,
			value:  fmt.Sprint(r.any, slices.Compact(r.keepers)), owners: w.namespaceOwners(pattern)})
	}
}

// sharedEndpoints records endpoints that gateways of several clusters use. Only owners of everything
// may add a gateway at an endpoint of another cluster.
func (w *leafWalk) sharedEndpoints(s *schema.ClusterSet) {
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
	noted := map[string]bool{}
	each(func(c *schema.Cluster, path, host string) {
		key := "shared " + host + " " + c.Name
		if len(users[host]) < 2 || noted[key] {
			return
		}
		noted[key] = true
		w.leaves = append(w.leaves, leaf{key: key, path: path, value: host, shared: true,
			within: "cluster " + c.Name + ": endpoint " + host + ", which another cluster has", of: path})
	})
}
