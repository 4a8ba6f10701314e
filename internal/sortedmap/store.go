// Package sortedmap keeps values by key: what a watch of the Kubernetes API told, and what was made of
// it. It knows nothing of either.
package sortedmap

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Map holds values by name or namespace/name. The zero Store is empty. It is for one goroutine
// at a time.
type Map[T any] struct {
	values map[string]T
	list   []T
	listed bool // list was made since the last change
}

// Get gives the value of a key, and whether there is one.
func (s *Map[T]) Get(key string) (T, bool) {
	value, there := s.values[key]
	return value, there
}

// Put reports whether what is there differs from what was.
func (s *Map[T]) Put(key string, value T) bool {
	if have, there := s.values[key]; there && reflect.DeepEqual(have, value) {
		return false
	}
	if s.values == nil {
		s.values = map[string]T{}
	}
	s.values[key] = value
	s.listed = false
	return true
}

// Delete reports whether there was one.
func (s *Map[T]) Delete(key string) bool {
	if _, there := s.values[key]; !there {
		return false
	}
	delete(s.values, key)
	s.listed = false
	return true
}

// Retain deletes what is not wanted, and reports whether there was any.
func (s *Map[T]) Retain(wanted func(key string) bool) bool {
	before := len(s.values)
	maps.DeleteFunc(s.values, func(key string, _ T) bool { return !wanted(key) })
	gone := len(s.values) != before
	s.listed = s.listed && !gone
	return gone
}

// Keys gives the keys by namespace, then by name.
func (s *Map[T]) Keys() []string { return slices.SortedFunc(maps.Keys(s.values), byPart) }

// List gives the values in the order of their keys; nil = there are none. As long as nothing
// changes it is the same list: do not change it.
func (s *Map[T]) List() []T {
	if s.listed {
		return s.list
	}
	s.list, s.listed = nil, true
	for _, key := range s.Keys() {
		s.list = append(s.list, s.values[key])
	}
	return s.list
}

func byPart(a, b string) int {
	an, aname, _ := strings.Cut(a, "/")
	bn, bname, _ := strings.Cut(b, "/")
	if an != bn {
		return strings.Compare(an, bn)
	}
	return strings.Compare(aname, bname)
}
