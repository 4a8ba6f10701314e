package health

import (
	"testing"
	"time"
)

// TestMatesSettle: a gateway that was alone is used again only after it has
// heard its cluster for a while without a break.
func TestMatesSettle(t *testing.T) {
	t.Parallel()
	s := Settings{Interval: 250 * time.Millisecond, Misses: 3}
	now := time.Unix(1_000_000, 0)
	m := mates{others: 2}
	hear := func(after time.Duration) bool {
		now = now.Add(after)
		return m.hear(now, s)
	}
	if hear(0) || m.alone {
		t.Fatal("alone at first")
	}
	if now = now.Add(silence(s)); !m.judge(now, s) {
		t.Fatal("not alone when nobody was heard for as long as a death takes")
	}
	heard := time.Duration(0)
	for ; heard < settle-250*time.Millisecond; heard += 250 * time.Millisecond {
		if hear(250 * time.Millisecond); !m.alone {
			t.Fatalf("used again after %v", heard)
		}
	}
	if hear(2 * silence(s)); !m.alone {
		t.Fatal("used again after a break")
	}
	for heard = 0; m.alone && heard < 2*settle; heard += 250 * time.Millisecond {
		hear(250 * time.Millisecond)
	}
	if heard < settle || m.alone {
		t.Fatalf("alone = %v after %v of hearing without a break, want no after %v", m.alone, heard, settle)
	}
	if hear(time.Millisecond) {
		t.Fatal("told twice")
	}
}
