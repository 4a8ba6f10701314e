package sortedmap

import (
	"reflect"
	"testing"
)

func TestStore(t *testing.T) {
	var s Map[[]int]
	if s.List() != nil || s.Delete("a/b") || s.Retain(func(string) bool { return false }) {
		t.Error("an empty store has something")
	}
	for _, put := range []struct {
		key     string
		value   []int
		changes bool
	}{
		{"a-b/c", []int{1}, true}, {"a/d", []int{2}, true}, {"a/d", []int{2}, false}, {"a/b", []int{3}, true}, {"a/d", []int{4}, true},
	} {
		if got := s.Put(put.key, put.value); got != put.changes {
			t.Errorf("put %s %v reports %t", put.key, put.value, got)
		}
	}
	if want := [][]int{{3}, {4}, {1}}; !reflect.DeepEqual(s.List(), want) {
		t.Errorf("have %v, want %v: by namespace, then by name", s.List(), want)
	}
	before := s.List()
	if s.Put("a/b", []int{3}); &before[0] != &s.List()[0] {
		t.Error("the list is a new one although nothing changed")
	}
	if !s.Retain(func(key string) bool { return key != "a/d" }) || s.Retain(func(string) bool { return true }) {
		t.Error("keep reports the wrong thing")
	}
	if _, there := s.Get("a/d"); there || len(before) != 3 || len(s.List()) != 2 {
		t.Errorf("have %v, and before %v", s.List(), before)
	}
	if !s.Delete("a/b") || s.Delete("a/b") || !reflect.DeepEqual(s.Keys(), []string{"a-b/c"}) {
		t.Errorf("have %v", s.Keys())
	}
}
