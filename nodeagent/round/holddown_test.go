package round

import (
	"maps"
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
)

// TestHoldDown checks that a path that was down is held down until it has been up for holdDownTime
// without interruption. New paths and paths that move are not held down.
func TestHoldDown(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	startedAt := now
	down, up, other := model.Path{Local: "a", Remote: "c", Down: true}, model.Path{Local: "a", Remote: "c"}, model.Path{Local: "b", Remote: "c"}
	var b holdDown
	last := map[string]activePath{}
	for _, step := range []struct {
		name  string
		after time.Duration
		path  model.Path
		down  bool
		again time.Duration
	}{
		{"not up yet", 0, down, true, 0},
		{"new", time.Second, up, false, 0},
		{"assumed up", time.Second, down, true, 0},
		{"alive", time.Second, up, false, 0},
		{"moved", holdDownTime, other, false, 0},
		{"lost", time.Second, down, true, 0},
		{"back", time.Second, up, true, holdDownTime},
		{"down again", holdDownTime / 2, down, true, 0},
		{"up again", holdDownTime / 2, up, true, holdDownTime},
		{"moved in the meantime", holdDownTime / 4, other, true, 3 * holdDownTime / 4},
		{"almost", 3*holdDownTime/4 - 1, other, true, 1},
		{"for good", 1, other, false, 0},
		{"still up", time.Second, up, false, 0},
	} {
		now = now.Add(step.after)
		paths := map[string]model.Path{"g2": step.path}
		before := b
		next, held, expires := b.update(startedAt, last, paths, now)
		down := step.path.Down || slices.Contains(held, "g2")
		if down != step.down || expires != step.again {
			t.Errorf("%s: down %v, expires after %v; want %v, %v", step.name, down, expires, step.down, step.again)
		}
		if paths["g2"] != step.path {
			t.Errorf("%s: update changed the paths", step.name)
		}
		if same, _, _ := before.update(startedAt, last, paths, now); !maps.Equal(same, next) {
			t.Errorf("%s: update changed the previous state", step.name)
		}
		b, last = next, map[string]activePath{"g2": {ActiveLink: health.ActiveLink{Path: step.path}}}
	}
}
