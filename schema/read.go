package schema

import (
	"reflect"

	"hawser.dev/hawser/internal/diag"
)

// Read reads another document into the struct that into points to, as strictly
// as Load reads a topology: the struct's tags hold the rules of its fields.
// check, if it is not nil, is called for a document that is a mapping and gives
// findings with paths; Read adds the places. What is read is to be used only when
// the list has no errors.
func Read(file string, raw []byte, into any, check func() diag.List) diag.List {
	v := reflect.ValueOf(into).Elem()
	src := newSource(file, raw, v.Type())
	list := src.parse()
	for i := range list {
		switch list[i].Code {
		case "empty-file":
			list[i].Hint = ""
		case "second-document":
			list[i].Hint = "remove the line --- and join the two"
		}
	}
	if src.root == nil {
		return list
	}
	d := decoder{src: src, list: list, bad: map[string]bool{}, book: rulebook{}, tally: tally{}}
	d.value(src.root, v, nil)
	c := checker{book: d.book, tally: tally{}}
	c.rules(v, "")
	d.adopt(append(c.list, c.tally.rest()...))
	if check != nil {
		d.adopt(check())
	}
	for _, more := range d.tally.rest() {
		d.list = append(d.list, src.locate(more))
	}
	d.list.Sort()
	return d.list
}
