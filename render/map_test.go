package render_test

import (
	"bytes"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
)

// TestMapChangesWithWhatItShows checks that the map changes only with changes that it shows. No
// cluster applies the map.
func TestMapChangesWithWhatItShows(t *testing.T) {
	t.Parallel()
	text := world(3, 2)
	before := mustRender(t, input(t, text))
	for _, c := range []struct {
		name, from, to string
		moves          bool
	}{
		{"DNS", "spec:\n", "spec:\n  dns: {ttl: 9s}\n", false},
		{"another key epoch", "spec:\n", "spec:\n  keys: {epochs: [1, 2]}\n", false},
		{"a shape", "spec:\n", "spec:\n  connectivity: {mode: hub, hubs: [c0]}\n", true},
		{"an endpoint", "203.0.1.1", "203.0.1.9", true},
	} {
		after := mustRender(t, input(t, strings.Replace(text, c.from, c.to, 1)))
		if bytes.Equal(before[render.FabricText], after[render.FabricText]) {
			t.Errorf("%s changes no fabric", c.name)
		}
		if moved := !bytes.Equal(before[render.MapPicture], after[render.MapPicture]); moved != c.moves {
			t.Errorf("%s: the picture changes: %v", c.name, moved)
		}
		if again := mustRender(t, input(t, strings.Replace(text, c.from, c.to, 1))); !bytes.Equal(again[render.MapPicture], after[render.MapPicture]) ||
			!bytes.Equal(again[render.MapText], after[render.MapText]) {
			t.Errorf("%s: two renderings draw two maps", c.name)
		}
	}
	for _, name := range []string{"clusters/c0", "clusters/c0/exports", "argocd"} {
		for key, object := range build(t, before, name) {
			if strings.Contains(object, "<svg") || strings.Contains(object, "mermaid") {
				t.Errorf("%s of %s has the map", key, name)
			}
		}
	}
}
