package schema

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

var durationType = reflect.TypeFor[fabric.Duration]()

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
			fillField(v.Type().Field(i), v.Field(i))
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

func fillField(f reflect.StructField, v reflect.Value) {
	if !f.IsExported() {
		return
	}
	text, ok := f.Tag.Lookup("default")
	if !ok {
		fill(v)
		return
	}
	if !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0) {
		return
	}
	if err := setText(v, text); err != nil {
		panic(fmt.Sprintf("schema: default of %s: %v", f.Name, err)) // a wrong tag
	}
}

// setText puts a value that is written as text into v.
func setText(v reflect.Value, text string) error {
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		v.SetInt(int64(d))
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setText(v.Elem(), text)
	case reflect.Slice:
		for part := range strings.SplitSeq(text, ",") {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := setText(item, part); err != nil {
				return err
			}
			v.Set(reflect.Append(v, item))
		}
		return nil
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case reflect.Int:
		n, err := strconv.Atoi(text)
		v.SetInt(int64(n))
		return err
	}
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}
