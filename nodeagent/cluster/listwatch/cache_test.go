package listwatch

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCache checks that the cache ignores an object that does not convert, or no longer converts. A
// list replaces all values, even if the reflector has converted some of its objects before.
func TestCache(t *testing.T) {
	t.Parallel()
	changes := 0
	c := &Cache[string]{
		OnChange: func() { changes++ },
		Convert: func(o *unstructured.Unstructured) (string, bool) {
			text, ok := o.Object["text"].(string)
			return text, ok
		},
	}
	object := func(name string, text any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "n", "name": name}, "text": text}}
	}
	converted := func(o *unstructured.Unstructured) any {
		out, err := c.Transformer()(o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, synced bool, want ...string) {
		t.Helper()
		if have, ok := c.Objects(); ok != synced || !slices.Equal(have, want) {
			t.Errorf("%s: have %v and synced %t, want %v and %t", what, have, ok, want, synced)
		}
	}
	expect("before the list", false)
	must(c.Replace([]any{converted(object("b", "two")), object("a", "one"), object("c", 3)}, "1"))
	expect("the list", true, "one", "two")
	must(c.Add(object("c", "three")))
	must(c.Update(object("a", "uno")))
	must(c.Update(object("b", 2)))
	expect("an object that no longer converts", true, "uno", "three")
	must(c.Delete(object("a", "uno")))
	expect("a deleted object", true, "three")
	must(c.Replace(nil, "2"))
	expect("an empty list", true)
	if changes != 6 {
		t.Errorf("OnChange ran %d times, want 6", changes)
	}
}
