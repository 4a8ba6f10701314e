package schema

import (
	"fmt"
	"reflect"

	"hawser.dev/hawser/schema/tags"
)

// Default fills every empty field that has a default (the tag of its type).
// What is set stays as it is, so that Default twice is Default once.
// The pools of a family, and the name servers' address, have one when some cluster
// has a prefix of it; IPv4 also when no cluster has any prefix.
func Default(s *ClusterSet) {
	spare := s.spareDefaults()
	fill(reflect.ValueOf(s).Elem())
	for _, unset := range spare {
		unset()
	}
	s.defaultIPv6()
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f, field := v.Type().Field(i), v.Field(i)
			text, ok := f.Tag.Lookup("default")
			switch {
			case !f.IsExported():
			case !ok:
				fill(field)
			case field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0:
				if err := tags.Set(field, text); err != nil {
					panic(fmt.Sprintf("schema: default of %s: %v", f.Name, err)) // a wrong tag
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem())
		}
	}
}
