// Package tags reads the tags of struct fields, which are rules: defaults, enums, ranges, what
// is required, what names an item and who owns a field. Package schema lists them.
package tags

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

// Field is a struct field with the rules of its tag.
type Field struct {
	Index            int
	Name             string // in the file
	Def              string
	Enum             []string
	Required         bool
	Min, Max         int64 // numbers as they are, durations in nanoseconds
	minText, MaxText string
	Hint             string // how to mend that it is missing
	Owner            string // whose owners may change it besides those of everything: cluster, namespace
}

// Cache remembers the fields of each type, as a file has thousands of items of one type.
type Cache map[reflect.Type][]Field

// Of gives the fields of a struct in order.
func (r Cache) Of(t reflect.Type) []Field {
	fields, ok := r[t]
	if !ok {
		fields = Fields(t)
		r[t] = fields
	}
	return fields
}

// Fields reads the tags of a struct.
func Fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" {
			continue
		}
		rule := Field{Index: i, Name: name, Def: f.Tag.Get("default"), Required: f.Tag.Get("required") == "true", Hint: f.Tag.Get("hint"),
			Owner: f.Tag.Get("owner")}
		if enum := f.Tag.Get("enum"); enum != "" {
			rule.Enum = strings.Split(enum, "|")
		}
		rule.minText, rule.MaxText = f.Tag.Get("min"), f.Tag.Get("max")
		rule.Min, rule.Max = bound(rule.minText), bound(rule.MaxText)
		out = append(out, rule)
	}
	return out
}

// bound reads the text of a min or max tag.
func bound(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	d, _ := time.ParseDuration(text)
	return int64(d)
}

// Naming gives the fields that name an item of type t (the name tag of its
// blank field), or nil.
func Naming(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	f, ok := t.FieldByName("_")
	if !ok {
		return nil
	}
	return strings.Split(f.Tag.Get("name"), "/")
}

// Types of values that are written as text.
var (
	DurationType = reflect.TypeFor[fabric.Duration]()
	TextType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	PrefixType   = reflect.TypeFor[netip.Prefix]()
)

// IsText reports whether a struct is written as text, as addresses are.
func IsText(v reflect.Value) bool { return reflect.PointerTo(v.Type()).Implements(TextType) }

// OutOfRange says that a number or duration, as the file has it, is outside of its range.
func OutOfRange(v reflect.Value, f Field) string {
	var text string
	switch {
	case v.Type() == DurationType:
		text = time.Duration(v.Int()).String()
	case v.Kind() == reflect.Float64:
		text = strconv.FormatFloat(v.Float(), 'f', -1, 64)
	default:
		text = strconv.FormatInt(v.Int(), 10)
	}
	return fmt.Sprintf("%s is not in the range %s to %s", text, f.minText, f.MaxText)
}
