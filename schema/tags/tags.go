// Package tags reads the rules in struct tags: defaults, enums, ranges, required fields, the
// fields that name an item, and owners. Package schema documents the tags.
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
	Min, Max         int64 // durations in nanoseconds
	minText, MaxText string
	Hint             string // how to fix a missing value
	Owner            string // whose owners may change it next to trust.owners: cluster, namespace
}

// Cache caches the fields of each type, because a file has thousands of items of one type.
type Cache map[reflect.Type][]Field

// Of returns the fields of a struct in order.
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

// Naming returns the fields that name an item of type t, from the name tag of its blank
// field; nil if absent.
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

// Types of values that have a text form.
var (
	DurationType = reflect.TypeFor[fabric.Duration]()
	TextType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	PrefixType   = reflect.TypeFor[netip.Prefix]()
)

// IsText reports whether a struct has a text form, such as an address.
func IsText(v reflect.Value) bool { return reflect.PointerTo(v.Type()).Implements(TextType) }

// OutOfRange returns the message for a number or duration outside the range of its field.
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
