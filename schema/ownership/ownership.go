// Package ownership finds in what two versions of a topology differ, and who owns each
// difference.
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

// Version is a topology as one commit has it.
type Version struct {
	Set    *schema.ClusterSet // of load.Topology or load.Decode, without errors
	Source *document.Source
}

// Change is one thing in which two versions of a topology differ.
type Change struct {
	Action string   // what was done to it: adds, changes, removes
	Item   string   // what it is, in words: export shop/web: allow
	Path   string   // the same as a topology path
	Pos    diag.Pos // where it stands; what was removed stands in the former version
	// Owners are the patterns of principals that may do so, by the former version, besides
	// its trust.owners.
	Owners []string
}

// Diff gives everything in which two versions mean something else, defaults
// included, by path. What a file looks like, and the order of its items, means nothing. It
// fails where names are none or occur twice, so that nobody could say what differs.
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
	whole := "\x00" // what came or went with all that is in it
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

// leaf is one value of a topology, or says that an item is there.
type leaf struct {
	key, path, value string
	within, of       string   // the item that it is in, in words, and that item's path
	owners           []string // see Difference
	item             bool     // it stands for an item as a whole
	shared           bool     // it says that a gateway shares an endpoint with another cluster
}

// Key is where the leaf stands.
func (l leaf) Key() string { return l.key }

// Fields gives its value.
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

// leavesOf gives all values of a topology. Who owns each of them the former version says.
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
	// Owners by the former version; those of namespaces as they are asked for.
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

// spot is where the walk is.
type spot struct {
	path       string
	within, of string
	owners     []string // of the cluster or namespace
	granted    bool     // a tag gives what is here to these
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

// item is one of a list whose items have names.
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

// rules says of each pattern of namespaces which clusters may export from there.
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

// sharedEndpoints notes the endpoints that gateways of several clusters have: beside
// another's, nobody but the owners of everything puts a gateway.
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
