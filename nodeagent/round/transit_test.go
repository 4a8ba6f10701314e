package round

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestTransition checks that the former shape stays until all clusters with a feed use the new
// shape, and a while longer.
func TestTransition(t *testing.T) {
	t.Parallel()
	hub := fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{"h"}}
	fabricOf := func(shape fabric.Shape) *fabric.Fabric {
		return &fabric.Fabric{Shape: shape, Clusters: []fabric.Cluster{{Name: "a"}, {Name: "b"}, {Name: "h"}}}
	}
	mesh := fabricOf(fabric.Shape{})
	now := time.Unix(1_000_000, 0)
	var l transition
	update := func(f *fabric.Fabric, former bool, shape string, wait time.Duration) bool {
		now = now.Add(wait)
		live := map[string]model.ClusterState{"b": {Shape: shape}}
		l.Former = former
		l = l.update(f, live, now)
		return l.Before != nil
	}
	there, gone := projection.ShapeDigest(fabric.Shape{}), projection.ShapeDigest(hub)
	steps := []struct {
		what   string
		fabric *fabric.Fabric
		former bool
		shape  string
		wait   time.Duration
		lasts  bool
	}{
		{"the first shape", fabricOf(hub), false, gone, 0, false},
		{"another one", mesh, true, gone, time.Second, true},
		{"this cluster still uses the former one", mesh, true, there, time.Minute, true},
		{"another cluster does", mesh, false, gone, time.Minute, true},
		{"another cluster will use it", mesh, false, "", time.Minute, true},
		{"all changed just now", mesh, false, there, 4 * time.Second, true},
		{"and a while ago", mesh, false, there, 2 * time.Second, false},
		{"back", fabricOf(hub), false, there, time.Second, true},
		{"a cluster never changes", fabricOf(hub), false, there, removalMax, false},
	}
	for _, s := range steps {
		if have := update(s.fabric, s.former, s.shape, s.wait); have != s.lasts {
			t.Errorf("%s: lasts %v, want %v", s.what, have, s.lasts)
		}
	}
}

// TestHasNewPath checks that the change waits only for clusters that get a path of the new shape.
func TestHasNewPath(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{
		Shape:    fabric.Shape{Mode: fabric.ModeExplicit, Edges: [][2]string{{"a", "h"}, {"b", "h"}}, Partial: true},
		Clusters: []fabric.Cluster{{Name: "a"}, {Name: "b"}, {Name: "h"}, {Name: "lone"}},
	}
	for _, c := range []struct {
		own    string
		former []string
		want   bool
	}{
		{"a", nil, false},
		{"a", []string{"b"}, true},
		{"a", []string{"lone"}, false},
		{"a", []string{"lone", "h"}, true},
		{"lone", []string{"a", "b"}, false},
	} {
		if have := hasNewPath(f.Graph(), c.own, c.former); have != c.want {
			t.Errorf("%s to %v: %v, want %v", c.own, c.former, have, c.want)
		}
	}
}

// TestTransitionOutlivesARestart checks agents that start during a change, or missed a change. They
// must have the shape that other clusters still use.
func TestTransitionOutlivesARestart(t *testing.T) {
	t.Parallel()
	fabricOf := func(mode string) *fabric.Fabric {
		return &fabric.Fabric{Shape: fabric.Shape{Mode: mode, Hubs: []string{"h"}}, Clusters: []fabric.Cluster{{Name: "a"}, {Name: "h"}}}
	}
	hub, mesh, now := fabricOf(fabric.ModeHub), fabricOf(fabric.ModeMesh), time.Unix(1_000_000, 0).UTC()
	restarted := func(l transition) transition {
		raw, err := json.Marshal(l.saved())
		var saved SavedShape
		if err = errors.Join(err, json.Unmarshal(raw, &saved)); err != nil {
			t.Fatal(err)
		}
		return restoreTransition(saved, now)
	}
	l := transition{}.update(hub, nil, now)
	for _, step := range []struct {
		what   string
		fabric *fabric.Fabric
		wait   time.Duration
		lasts  bool
	}{
		{"nothing new", hub, time.Minute, false},
		{"another shape while it was down", mesh, time.Minute, true},
		{"again, in the middle", mesh, time.Second, true},
		{"and the change does not end", mesh, removalMax, false},
		{"after the end", mesh, time.Second, false},
	} {
		l = restarted(l)
		now = now.Add(step.wait)
		l.Former = true
		l = l.update(step.fabric, nil, now)
		if before := l.Before; (before != nil) != step.lasts || before != nil && before.Mode != fabric.ModeHub {
			t.Errorf("%s: former shape %+v", step.what, before)
		}
	}
}

func TestTransitRanks(t *testing.T) {
	t.Parallel()
	k := transitRanks{selector: &pathSelector{Cluster: "a"}, states: map[string]model.ClusterState{
		"h": {Transit: &model.TransitAdvert{Edges: []model.TransitEdge{{Cluster: "b", Rank: 2}, {Cluster: "c", Rank: 99, MTU: 1300}}}},
		"b": {Transit: &model.TransitAdvert{Edges: []model.TransitEdge{{Cluster: "h", Rank: 1}}}},
		"d": {},
	}}
	for _, tt := range []struct {
		a, b string
		rank string
	}{
		{"h", "b", "isolated"},   // the lower one of two reports
		{"h", "c", "good"},       // no rank is better than good
		{"x", "y", "good"},       // no report
		{"h", "d", "down"},       // d does not accept transit
		{"h", "e", "good"},       // e has no report, and h reports good
		{"a", "h", "down"},       // a link of this cluster that does not exist
		{"h", "a", "down"},       // the same
		{"b", "x", "good"},       // b has no report against it
		{"b", "h", "isolated"},   // the order does not matter
		{"unknown", "d", "down"}, // d does not accept transit
	} {
		if have := k.transit(tt.a, tt.b).String(); have != tt.rank {
			t.Errorf("%s-%s is %s, want %s", tt.a, tt.b, have, tt.rank)
		}
	}
	if have := k.size([]string{"h", "c"}); have != 1300 {
		t.Errorf("path MTU through h to c: %d bytes", have)
	}
	if have := k.size([]string{"h", "b"}); have != 0 {
		t.Errorf("path MTU through h to b: %d bytes", have)
	}
}
