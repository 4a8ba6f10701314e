// Package load reads topology files, and others whose rules are tags: YAML to the types of
// package schema, with defaults, each mistake with its place. It formats them, too.
package load

import (
	"reflect"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fieldpath"
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
		d.mergeFindings(validate.Topology(set))
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
	d := newDecoder(file, raw, reflect.TypeFor[schema.ClusterSet]())
	if d.src.Root == nil {
		return set, d
	}
	d.value(d.src.Root, reflect.ValueOf(set).Elem(), nil)
	if d.src.Root.Kind == yaml.MappingNode {
		schema.Default(set)
	}
	return set, d
}

// newDecoder parses a file that is read into a type.
func newDecoder(file string, raw []byte, top reflect.Type) *decoder {
	d := &decoder{src: document.New(file, raw, top), bad: map[string]bool{}, book: tags.Cache{}, tally: diag.Tally{}}
	d.list = d.src.Parse()
	return d
}

// Document reads another document into the struct that into points to, as strictly
// as Topology reads one: the struct's tags hold the rules of its fields.
// check, if it is not nil, is called for a document that is a mapping and gives
// findings with paths; Read adds the places. What is read is to be used only when
// the list has no errors.
func Document(file string, raw []byte, into any, check func() diag.List) diag.List {
	v := reflect.ValueOf(into).Elem()
	d := newDecoder(file, raw, v.Type())
	for i := range d.list {
		switch d.list[i].Code {
		case "empty-file":
			d.list[i].Hint = ""
		case "second-document":
			d.list[i].Hint = "remove the line --- and join the two"
		}
	}
	if d.src.Root == nil {
		return d.list
	}
	d.value(d.src.Root, v, nil)
	d.mergeFindings(validate.Tags(v, d.book))
	if check != nil {
		d.mergeFindings(check())
	}
	return d.all()
}

// all returns the findings in order.
func (d *decoder) all() diag.List {
	for _, more := range d.tally.Rest() {
		d.list = append(d.list, d.src.WithPos(more))
	}
	d.list.Sort()
	return d.src.ClipValues(d.list)
}

// mergeFindings takes over findings that have only paths, and leaves out those that
// follow from a value that could not be read.
func (d *decoder) mergeFindings(found diag.List) {
	for _, f := range found {
		path := f.Path
		for path != "" && !d.bad[path] {
			path = fieldpath.Parent(path)
		}
		if path == "" {
			d.list = append(d.list, d.src.WithPos(f))
		}
	}
}
