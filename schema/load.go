package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
)

// Load reads, checks and completes a topology file. The list holds everything
// that was found, each with its place; the ClusterSet is to be used only when
// the list has no errors. Neither result is nil.
//
// The values are taken from the YAML 1.2 node tree and nothing is guessed: a
// number is no text, yes is no boolean, and anchors, aliases, tags and a second
// document are refused, so that no two tools read the file differently.
func Load(file string, raw []byte) (*ClusterSet, *Source, diag.List) {
	set, d := decode(file, raw)
	if d.src.root != nil && d.src.root.Kind == yaml.MappingNode {
		d.adopt(Validate(set))
	}
	return set, d.src, d.all()
}

// Decode reads and completes a topology file as Load does, and does not check what its
// values mean: names may be none, and lead to nothing.
func Decode(file string, raw []byte) (*ClusterSet, *Source, diag.List) {
	set, d := decode(file, raw)
	return set, d.src, d.all()
}

func decode(file string, raw []byte) (*ClusterSet, *decoder) {
	set := &ClusterSet{}
	d := &decoder{src: newSource(file, raw, reflect.TypeFor[ClusterSet]()), bad: map[string]bool{}, book: rulebook{}, tally: tally{}}
	if d.list = d.src.parse(); d.src.root == nil {
		return set, d
	}
	d.value(d.src.root, reflect.ValueOf(set).Elem(), nil)
	if d.src.root.Kind == yaml.MappingNode {
		Default(set)
	}
	return set, d
}

// all gives the findings in order.
func (d *decoder) all() diag.List {
	for _, more := range d.tally.rest() {
		d.list = append(d.list, d.src.locate(more))
	}
	d.list.Sort()
	return d.list
}

// adopt takes over findings that have only paths, and leaves out those that
// follow from a value that could not be read.
func (d *decoder) adopt(found diag.List) {
	for _, f := range found {
		if !d.unread(f.Path) {
			d.list = append(d.list, d.src.locate(f))
		}
	}
}

// locate adds the places. A default has none: where it conflicts with something
// in the file, the finding stands there.
func (s *Source) locate(f diag.Diagnostic) diag.Diagnostic {
	var others []diag.Related
	for _, r := range f.Related {
		if s.Has(r.Path) {
			others = append(others, diag.Related{Path: r.Path, Pos: s.Pos(r.Path)})
		}
	}
	f.Pos, f.Related = s.Pos(f.Path), others
	if !s.Has(f.Path) && len(others) > 0 {
		f.Pos, f.Related = others[0].Pos, others[1:]
	}
	return f
}

// unread reports whether path, or what it is part of, could not be read.
func (d *decoder) unread(path string) bool {
	for ; path != ""; path = parentPath(path) {
		if d.bad[path] {
			return true
		}
	}
	return false
}

// parse sets root to the top node of the only document, or leaves it nil.
func (s *Source) parse() diag.List {
	if f, bad := s.encoding(); bad {
		return diag.List{f}
	}
	if at, found := mergeMarker(s.File, s.Raw); found {
		return diag.List{{Severity: diag.Error, Code: "merge-conflict", Pos: at, Summary: "the file holds the marks of an unfinished merge",
			Hint: "keep of both sides what is meant and remove the lines that begin with <<<<<<<, ======= and >>>>>>>"}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(s.Raw))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && isNull(doc.Content[0]):
		return diag.List{{
			Severity: diag.Error, Code: "empty-file", Pos: diag.Pos{File: s.File}, Summary: "the file holds no document",
			Hint: "`hawser init` writes one to begin with",
		}}
	case err != nil:
		return diag.List{s.syntax(err)}
	}
	s.root = doc.Content[0]
	for {
		var second yaml.Node
		switch err := dec.Decode(&second); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return diag.List{s.syntax(err)}
		case !isNull(second.Content[0]): // a line --- at the end begins a document that holds nothing
			return diag.List{{
				Severity: diag.Error, Code: "second-document", Pos: s.place(second.Content[0]),
				Summary: "a second YAML document begins here", Hint: "a topology file is one document: remove the line --- and join the two",
			}}
		}
	}
}

// encoding finds the first byte that YAML does not allow in a text.
func (s *Source) encoding() (diag.Diagnostic, bool) {
	line, column := 1, 1
	for rest := s.Raw; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		control := r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f
		if control || r == utf8.RuneError && size == 1 {
			return diag.Diagnostic{
				Severity: diag.Error, Code: "yaml-encoding", Pos: diag.Pos{File: s.File, Line: line, Column: column, Width: 1},
				Summary: fmt.Sprintf("byte %#02x is not allowed in a YAML text", rest[0]),
				Hint:    "save the file as UTF-8 without control characters",
			}, true
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		rest = rest[size:]
	}
	return diag.Diagnostic{}, false
}
