package load

import (
	"reflect"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/tags"
	"hawser.dev/hawser/schema/validate"
)

// Read reads another document into the struct that into points to, as strictly
// as Topology reads one: the struct's tags hold the rules of its fields.
// check, if it is not nil, is called for a document that is a mapping and gives
// findings with paths; Read adds the places. What is read is to be used only when
// the list has no errors.
func Read(file string, raw []byte, into any, check func() diag.List) diag.List {
	v := reflect.ValueOf(into).Elem()
	src := document.New(file, raw, v.Type())
	list := src.Parse()
	for i := range list {
		switch list[i].Code {
		case "empty-file":
			list[i].Hint = ""
		case "second-document":
			list[i].Hint = "remove the line --- and join the two"
		}
	}
	if src.Root == nil {
		return list
	}
	d := decoder{src: src, list: list, bad: map[string]bool{}, book: tags.Book{}, tally: diag.Tally{}}
	d.value(src.Root, v, nil)
	d.adopt(validate.Tags(v, d.book))
	if check != nil {
		d.adopt(check())
	}
	for _, more := range d.tally.Rest() {
		d.list = append(d.list, src.Locate(more))
	}
	d.list.Sort()
	return d.list
}
