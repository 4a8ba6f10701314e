package fabric

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Limits of documents. A fabric of 1000 clusters with two gateways each and 10000
// exports has 3 MiB of JSON and 7 MiB decoded. If every link differs from Tunnel, it
// has 45 MiB and 60 MiB. Keys grow with the gateways of one cluster, at most
// MaxGateways.
const (
	MaxFabric = 64 << 20 // bytes of JSON
	MaxKeys   = 1 << 20  // bytes of JSON

	maxFabricDecoded = 128 << 20 // bytes as counted by countMemory
	maxKeysDecoded   = 4 << 20
	maxDepth         = 64 // nesting of lists and objects; a fabric has 7
)

// ErrTooLarge is the error for a document that exceeds its limits.
var ErrTooLarge = errors.New("too large")

var (
	fromJSON = reflect.TypeFor[json.Unmarshaler]()
	fromText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// countMemory counts the bytes of memory that raw, JSON for a value of type t, needs when
// decoded, without decoding it: "{}," is three bytes of JSON and can be hundreds in
// memory. It fails with ErrTooLarge beyond limit. It counts texts and the elements of
// lists and maps, without the spare capacity that Go allocates. Invalid JSON is left to
// the decoder.
func countMemory(raw []byte, t reflect.Type, limit int) (used int, err error) {
	s := memoryCounter{remaining: limit, fields: map[reflect.Type]map[string]reflect.Type{}, hasUnmarshaler: map[reflect.Type]bool{}}
	var stack []container
	next := s.deref(t) // the type of the next value; nil if the decoder ignores it
	for i := 0; i < len(raw) && s.remaining >= 0; i++ {
		var in *container
		if len(stack) > 0 {
			in = &stack[len(stack)-1]
		}
		switch raw[i] {
		case '"':
			text := quotedText(raw[i:])
			i += len(text) - 1
			if in != nil && in.key {
				next, in.key = s.objectValue(in.typ, text), false
			} else if next != nil {
				s.remaining -= textSize(text)
			}
		case '{', '[':
			if len(stack) == maxDepth {
				return 0, fmt.Errorf("%w: lists and objects %d deep in each other", ErrTooLarge, maxDepth+1)
			}
			stack = append(stack, container{typ: next, object: raw[i] == '{', key: raw[i] == '{'})
			if raw[i] == '[' {
				next = s.listElement(next)
			} else if next != nil && next.Kind() == reflect.Map {
				// The header and the first entries.
				s.remaining -= 48 + 8*int(next.Key().Size()+next.Elem().Size())
			}
		case '}', ']':
			stack = stack[:max(len(stack)-1, 0)]
		case ',':
			if in == nil {
				continue
			}
			if in.key = in.object; !in.key {
				next = s.listElement(in.typ)
			}
		}
	}
	if s.remaining < 0 {
		return 0, fmt.Errorf("%w: more than %d MiB in memory", ErrTooLarge, limit>>20)
	}
	return limit - s.remaining, nil
}

type container struct {
	typ    reflect.Type // nil if the decoder ignores it
	object bool
	key    bool // a key comes next
}

type memoryCounter struct {
	remaining      int
	fields         map[reflect.Type]map[string]reflect.Type
	hasUnmarshaler map[reflect.Type]bool // types with an unmarshaler
}

// deref counts the value that a pointer of type t points to, and returns its type.
func (s *memoryCounter) deref(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		s.remaining -= int(t.Size())
	}
	return t
}

// structured returns t, or nil if t has an unmarshaler: such types are small.
func (s *memoryCounter) structured(t reflect.Type) reflect.Type {
	if t == nil {
		return nil
	}
	custom, known := s.hasUnmarshaler[t]
	if !known {
		custom = reflect.PointerTo(t).Implements(fromJSON) || reflect.PointerTo(t).Implements(fromText)
		s.hasUnmarshaler[t] = custom
	}
	if custom {
		return nil
	}
	return t
}

// listElement counts an element of a list of type t, and returns its type.
func (s *memoryCounter) listElement(t reflect.Type) reflect.Type {
	switch t = s.structured(t); {
	case t == nil:
		return nil
	case t.Kind() == reflect.Slice:
		s.remaining -= int(t.Elem().Size())
		return s.deref(t.Elem())
	case t.Kind() == reflect.Array: // counted as a part of its container
		return s.deref(t.Elem())
	}
	return nil
}

// objectValue counts an entry of an object of type t, and returns the type of its value.
func (s *memoryCounter) objectValue(t reflect.Type, key []byte) reflect.Type {
	switch t = s.structured(t); {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		s.remaining -= 2*int(t.Key().Size()+t.Elem().Size()) + textSize(key)
		return s.deref(t.Elem())
	case t.Kind() != reflect.Struct:
		return nil
	}
	names := s.fields[t]
	if names == nil {
		names = map[string]reflect.Type{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			names[name] = f.Type
		}
		s.fields[t] = names
	}
	if found, ok := names[string(key[1:max(len(key)-1, 1)])]; ok {
		return s.deref(found)
	}
	var plain string
	if json.Unmarshal(key, &plain) != nil {
		return nil
	}
	for name, found := range names { // encoding/json ignores the case of names
		if strings.EqualFold(name, plain) {
			return s.deref(found)
		}
	}
	return nil
}

// quotedText returns the text at the beginning of raw, with its quotes.
func quotedText(raw []byte) []byte {
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return raw[:i+1]
		}
	}
	return raw
}

// textSize returns an upper bound of the size of a decoded text: a byte of invalid UTF-8 becomes
// three.
func textSize(text []byte) int {
	size := len(text)
	for _, c := range text {
		if c >= utf8.RuneSelf {
			size += 2
		}
	}
	return size
}
