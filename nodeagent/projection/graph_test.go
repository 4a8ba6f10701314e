package projection

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

func names(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), " ")
}

func TestGraphSourcesAndOnlyVia(t *testing.T) {
	t.Parallel()
	hub := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}
	hubs := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h", "i"}}
	chain := fabric.Shape{Mode: fabric.ModeExplicit, Edges: [][2]string{{"a", "b"}, {"b", "h"}, {"h", "i"}}}
	ring := fabric.Shape{Mode: fabric.ModeExplicit, Edges: [][2]string{{"a", "b"}, {"a", "i"}, {"b", "h"}, {"h", "i"}}}
	tests := []struct {
		name                string
		now                 fabric.Shape
		before              *fabric.Shape
		cluster, neighbour  string
		sources, back       string
		linked, passes, far bool // linked and passes are of the neighbour; far: a and b are linked
	}{
		{"mesh", fabric.Shape{}, nil, "a", "b", "b", "b", true, false, true},
		{"a spoke sends as itself only", hub, nil, "h", "a", "a", "a", true, false, false},
		{"a hub sends for all others", hub, nil, "a", "h", "b h i", "b h i", true, true, false},
		{"spokes do not forward between hubs", hubs, nil, "h", "a", "a", "a", true, false, false},
		{"a hub sends for spokes to another", hubs, nil, "h", "i", "a b i", "i", true, true, false},
		{"chain, from its end", chain, nil, "h", "b", "a b", "a b", true, true, true},
		{"chain, from the opposite end", chain, nil, "b", "h", "h i", "h i", true, true, true},
		{"ring", ring, nil, "a", "b", "b h i", "b", true, true, true},
		{"a mesh after a hub", fabric.Shape{}, &hub, "a", "h", "b h i", "h", true, true, true},
		{"a hub after a mesh", hub, &fabric.Shape{}, "a", "b", "b", "b", true, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := &fabric.Fabric{Shape: tt.now}
			for _, c := range []string{"a", "b", "h", "i"} {
				f.Clusters = append(f.Clusters, fabric.Cluster{Name: c})
			}
			n := NewGraph(f, tt.before)
			if have := names(n.Sources(tt.cluster, tt.neighbour)); have != tt.sources {
				t.Errorf("sources: %s, want %s", have, tt.sources)
			}
			if have := names(n.OnlyVia(tt.cluster, tt.neighbour)); have != tt.back {
				t.Errorf("back: %s, want %s", have, tt.back)
			}
			if n.Linked(tt.cluster, tt.neighbour) != tt.linked || n.ForwardsTransit(tt.neighbour) != tt.passes || n.Linked("a", "b") != tt.far {
				t.Errorf("linked %v, forwards %v, a and b linked %v",
					n.Linked(tt.cluster, tt.neighbour), n.ForwardsTransit(tt.neighbour), n.Linked("a", "b"))
			}
		})
	}
}

func TestShapes(t *testing.T) {
	t.Parallel()
	mesh, named := fabric.Shape{}, fabric.Shape{Mode: fabric.ModeMesh}
	hub, other := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}, fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"i"}}
	if !SameShape(mesh, named) || ShapeDigest(mesh) != ShapeDigest(named) {
		t.Error("a mesh is not a mesh")
	}
	if SameShape(hub, other) || SameShape(mesh, hub) || ShapeDigest(hub) == ShapeDigest(other) || len(ShapeDigest(hub)) != 16 {
		t.Error("different shapes are the same")
	}
	partial := hub
	partial.Partial = true
	if !SameShape(hub, partial) || ShapeDigest(hub) != ShapeDigest(partial) {
		t.Error("a shape differs although all its links are the same")
	}
}
