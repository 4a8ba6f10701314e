// Package sortedmap provides a map from namespace/name to values with a sorted list of the values.
package sortedmap

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Map maps keys of the form name or namespace/name to values. The zero Map is empty. It is not safe
// for concurrent use.
type Map[T any] struct {
	values      map[string]T
	list        []T
	listCurrent bool // list is current
}

// Get returns the value of a key, and whether it exists.
func (s *Map[T]) Get(key string) (T, bool) {
	value, ok := s.values[key]
	return value, ok
}

// Put stores a value and reports whether it differs from the previous one.
func (s *Map[T]) Put(key string, value T) bool {
	if before, ok := s.values[key]; ok && reflect.DeepEqual(before, value) {
		return false
	}
	if s.values == nil {
		s.values = map[string]T{}
	}
	s.values[key] = value
	s.listCurrent = false
	return true
}

// Delete removes a key and reports whether it existed.
func (s *Map[T]) Delete(key string) bool {
	if _, ok := s.values[key]; !ok {
		return false
	}
	delete(s.values, key)
	s.listCurrent = false
	return true
}

// Retain removes the keys for which keep returns false, and reports whether it removed any.
func (s *Map[T]) Retain(keep func(key string) bool) bool {
	before := len(s.values)
	maps.DeleteFunc(s.values, func(key string, _ T) bool { return !keep(key) })
	removed := len(s.values) != before
	s.listCurrent = s.listCurrent && !removed
	return removed
}

// Keys returns the keys, sorted by namespace and name.
func (s *Map[T]) Keys() []string { return slices.SortedFunc(maps.Keys(s.values), byPart) }

// List returns the values in the order of their keys; nil if empty. Without a change it returns the
// same slice again. The caller must not modify it.
func (s *Map[T]) List() []T {
	if s.listCurrent {
		return s.list
	}
	s.list, s.listCurrent = nil, true
	for _, key := range s.Keys() {
		s.list = append(s.list, s.values[key])
	}
	return s.list
}

func byPart(a, b string) int {
	aNamespace, aName, _ := strings.Cut(a, "/")
	bNamespace, bName, _ := strings.Cut(b, "/")
	if aNamespace != bNamespace {
		return strings.Compare(aNamespace, bNamespace)
	}
	return strings.Compare(aName, bName)
}
