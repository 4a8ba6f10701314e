package tags

import (
	"encoding"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Set parses text and stores the value in v. Items of a slice are separated by commas.
func Set(v reflect.Value, text string) error {
	if v.Type() == DurationType {
		d, err := time.ParseDuration(text)
		v.SetInt(int64(d))
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return Set(v.Elem(), text)
	case reflect.Slice:
		for part := range strings.SplitSeq(text, ",") {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := Set(item, part); err != nil {
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
