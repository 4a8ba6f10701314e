// Package load reads topology files, and others whose rules are tags: YAML to the types of
// package schema, with defaults, each mistake with its place. It formats them, too.
//
// Called by reconciler, lab and cmd/hawser.
package load

import (
	"reflect"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/paths"
	"hawser.dev/hawser/schema/tags"
	"hawser.dev/hawser/schema/validate"
)

// Topology reads, checks and completes a topology file. The list holds everything
// that was found, each with its place; the ClusterSet is to be used only when
// the list has no errors. Neither result is nil.
//
// The values are taken from the YAML 1.2 node tree and nothing is guessed: a
// number is no text, yes is no boolean, and anchors, aliases, tags and a second
// document are refused, so that no two tools read the file differently.
func Topology(file string, raw []byte) (*schema.ClusterSet, *document.Source, diag.List) {
	set, d := decode(file, raw)
	if d.src.Root != nil && d.src.Root.Kind == yaml.MappingNode {
		d.adopt(validate.Topology(set))
	}
	return set, d.src, d.all()
}

// Decode reads and completes a topology file as Topology does, and does not check what its
// values mean: names may be none, and lead to nothing.
func Decode(file string, raw []byte) (*schema.ClusterSet, *document.Source, diag.List) {
	set, d := decode(file, raw)
	return set, d.src, d.all()
}

func decode(file string, raw []byte) (*schema.ClusterSet, *decoder) {
	set := &schema.ClusterSet{}
	d := &decoder{src: document.New(file, raw, reflect.TypeFor[schema.ClusterSet]()), bad: map[string]bool{}, book: tags.Book{}, tally: diag.Tally{}}
	if d.list = d.src.Parse(); d.src.Root == nil {
		return set, d
	}
	d.value(d.src.Root, reflect.ValueOf(set).Elem(), nil)
	if d.src.Root.Kind == yaml.MappingNode {
		schema.Default(set)
	}
	return set, d
}

// all gives the findings in order.
func (d *decoder) all() diag.List {
	for _, more := range d.tally.Rest() {
		d.list = append(d.list, d.src.Locate(more))
	}
	d.list.Sort()
	return d.list
}

// adopt takes over findings that have only paths, and leaves out those that
// follow from a value that could not be read.
func (d *decoder) adopt(found diag.List) {
	for _, f := range found {
		if !d.unread(f.Path) {
			d.list = append(d.list, d.src.Locate(f))
		}
	}
}

// unread reports whether path, or what it is part of, could not be read.
func (d *decoder) unread(path string) bool {
	for ; path != ""; path = paths.Parent(path) {
		if d.bad[path] {
			return true
		}
	}
	return false
}
