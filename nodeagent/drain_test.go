package nodeagent

import (
	"path/filepath"
	"testing"
	"time"
)

func TestDrainSurvivesRestarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), drainedFile)
	for _, want := range []bool{false, true, true, false} {
		d, err := newDrain(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.set(want); err != nil {
			t.Fatal(err)
		}
		again, err := newDrain(path)
		if err != nil || d.is() != want || again.is() != want {
			t.Errorf("drained %t, after a restart %t (%v), want %t", d.is(), again.is(), err, want)
		}
	}
	if _, err := newDrain(filepath.Join(path, "below", "a file")); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	d := &drain{path: filepath.Join(t.TempDir(), "no", "folder")}
	if err := d.set(true); err == nil || d.is() {
		t.Errorf("a mark that cannot be written: drained %t (%v)", d.is(), err)
	}
}

func TestDrainIsOverAfterARest(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	d := &drain{used: now}
	for _, step := range []struct {
		after time.Duration
		used  bool
		want  bool
	}{{0, true, false}, {time.Second / 2, false, false}, {time.Second / 4, true, false}, {time.Second * 3 / 4, false, false},
		{time.Second / 4, false, true}, {time.Minute, false, true}, {0, true, false}} {
		now = now.Add(step.after)
		if got := d.left(step.used, now); got != step.want {
			t.Errorf("%+v: left %t", step, got)
		}
	}
}
