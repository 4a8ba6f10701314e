// Package load decodes topology files, and other YAML files whose rules are struct tags, into the
// types of package schema, with defaults. It reports each error with its position. It also formats
// topology files.
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

// Topology decodes and checks a topology file and adds defaults. The list has all findings with
// their positions. Use the ClusterSet only if the list has no errors. No result is nil.
//
// Values come from the YAML 1.2 node tree without guesses: a number is not a text and yes is not a
// boolean. Anchors, aliases, tags and a second document are refused, so that all tools read the
// file in the same way.
func Topology(file string, raw []byte) (*schema.ClusterSet, *document.Source, diag.List) {
	set, d := decode(file, raw)
	if d.src.Root != nil && d.src.Root.Kind == yaml.MappingNode {
		d.mergeFindings(validate.Topology(set))
	}
	return set, d.src, d.findings()
}

// Decode decodes a topology file and adds defaults, as Topology does, but does not check the
// meaning of values: names may be invalid or refer to nothing.
func Decode(file string, raw []byte) (*schema.ClusterSet, *document.Source, diag.List) {
	set, d := decode(file, raw)
	return set, d.src, d.findings()
}

func decode(file string, raw []byte) (*schema.ClusterSet, *decoder) {
	set := &schema.ClusterSet{}
	d := newDecoder(file, raw, reflect.TypeFor[schema.ClusterSet]())
	if d.src.Root == nil {
		return set, d
	}
	d.decodeValue(d.src.Root, reflect.ValueOf(set).Elem(), nil)
	if d.src.Root.Kind == yaml.MappingNode {
		schema.Default(set)
	}
	return set, d
}

// newDecoder parses a file for decoding into a type.
func newDecoder(file string, raw []byte, top reflect.Type) *decoder {
	d := &decoder{src: document.New(file, raw, top), badPaths: map[string]bool{}, tagCache: tags.Cache{}, tally: diag.Tally{}}
	d.list = d.src.Parse()
	return d
}

// Document decodes another document into the struct that into points to, as strictly as Topology.
// The struct's tags are the rules of its fields. If check is not nil, it is called for a document
// that is a mapping, and returns findings with paths; Document adds the positions. Use the struct
// only if the list has no errors.
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
	d.decodeValue(d.src.Root, v, nil)
	d.mergeFindings(validate.Tags(v, d.tagCache))
	if check != nil && d.src.Root.Kind == yaml.MappingNode {
		d.mergeFindings(check())
	}
	return d.findings()
}

// findings returns the findings, sorted.
func (d *decoder) findings() diag.List {
	for _, more := range d.tally.Overflow() {
		d.list = append(d.list, d.src.WithPos(more))
	}
	d.list.Sort()
	return d.src.ClipValues(d.list)
}

// mergeFindings adds findings that have only paths, except those that follow from an unreadable
// value.
func (d *decoder) mergeFindings(found diag.List) {
	for _, f := range found {
		path := f.Path
		for path != "" && !d.badPaths[path] {
			path = fieldpath.Parent(path)
		}
		if path == "" {
			d.list = append(d.list, d.src.WithPos(f))
		}
	}
}
