package schema

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is a struct field with the rules of its tag.
type field struct {
	index            int
	name             string // in the file
	def              string
	enum             []string
	required         bool
	min, max         int64 // numbers as they are, durations in nanoseconds
	minText, maxText string
	hint             string // how to mend that it is missing
	owner            string // whose owners may change it besides those of everything: cluster, namespace
}

// rulebook remembers the fields of each type, as a file has thousands of items of one type.
type rulebook map[reflect.Type][]field

// of gives the fields of a struct in order.
func (r rulebook) of(t reflect.Type) []field {
	fields, ok := r[t]
	if !ok {
		fields = fieldsOf(t)
		r[t] = fields
	}
	return fields
}

func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" {
			continue
		}
		rule := field{index: i, name: name, def: f.Tag.Get("default"), required: f.Tag.Get("required") == "true", hint: f.Tag.Get("hint"),
			owner: f.Tag.Get("owner")}
		if enum := f.Tag.Get("enum"); enum != "" {
			rule.enum = strings.Split(enum, "|")
		}
		rule.minText, rule.maxText = f.Tag.Get("min"), f.Tag.Get("max")
		rule.min, rule.max = bound(rule.minText), bound(rule.maxText)
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
