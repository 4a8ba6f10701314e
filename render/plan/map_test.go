package plan_test

import (
	"maps"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
)

// TestMapIsNoChange checks that a changed map adds no entry if other entries list its differences.
// A changed drawing, such as by a newer Hawser, disrupts no connection.
func TestMapIsNoChange(t *testing.T) {
	t.Parallel()
	have := next(t, stage{}, world(3, 3))
	want := next(t, have, world(4, 3))
	if string(want.tree[render.MapPicture]) == string(have.tree[render.MapPicture]) {
		t.Fatal("a cluster more changes no map")
	}
	for _, e := range compute(t, want, have).Entries {
		if strings.HasPrefix(e.Key, "map.") {
			t.Errorf("an entry of the map: %+v", e)
		}
	}
	older := stage{tree: maps.Clone(have.tree), source: have.source}
	delete(older.tree, render.MapPicture)
	older.tree[render.MapText] = []byte("drawn in another way\n")
	p := compute(t, have, older)
	if len(p.Entries) != 2 {
		t.Errorf("a map that comes: %+v", p.Entries)
	}
	for _, e := range p.Entries {
		if e.Kind != "file" || e.Disruptive != "" {
			t.Errorf("a map that comes: %+v", e)
		}
	}
}
