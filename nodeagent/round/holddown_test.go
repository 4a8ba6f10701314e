package round

import (
	"maps"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
)

// TestBack: a cluster whose path was lost counts as down until the path has lived for a while
// without a break; one that is new, and one whose path moved, do not.
func TestBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	began := now
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
		{"taken for alive", time.Second, down, true, 0},
		{"alive", time.Second, up, false, 0},
		{"moved", holdDownTime, other, false, 0},
		{"lost", time.Second, down, true, 0},
		{"back", time.Second, up, true, holdDownTime},
		{"lost again", holdDownTime / 2, down, true, 0},
		{"back again", holdDownTime / 2, up, true, holdDownTime},
		{"moved meanwhile", holdDownTime / 4, other, true, 3 * holdDownTime / 4},
		{"almost", 3*holdDownTime/4 - 1, other, true, 1},
		{"for good", 1, other, false, 0},
		{"and stays", time.Second, up, false, 0},
	} {
		now = now.Add(step.after)
		paths := map[string]model.Path{"g2": step.path}
		before := b
		next, again := b.apply(began, last, paths, now)
		if paths["g2"].Down != step.down || again != step.again {
			t.Errorf("%s: down %v, again after %v; want %v, %v", step.name, paths["g2"].Down, again, step.down, step.again)
		}
		if same, _ := before.apply(began, last, map[string]model.Path{"g2": step.path}, now); !maps.Equal(same, next) {
			t.Errorf("%s: the step changed what was before", step.name)
		}
		b, last = next, map[string]activePath{"g2": {ActiveLink: health.ActiveLink{Path: step.path}}}
	}
}
