package kernel

import (
	"testing"
	"time"
)

// TestHandshakes walks peers through handshakes while the wall clock jumps, which WireGuard
// uses for their times.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	start := time.Now()
	type step struct {
		after time.Duration // since the start, by the monotonic clock
		told  time.Time
		want  bool
	}
	wall := func(d time.Duration) time.Time { return start.Round(0).Add(d) }
	tests := []struct {
		name  string
		steps []step
	}{
		{"none", []step{{0, time.Time{}, false}, {time.Hour, time.Time{}, false}}},
		{"old handshake", []step{{0, wall(0), true}, {179 * time.Second, wall(0), true}, {181 * time.Second, wall(0), false}}},
		{"from before the start", []step{{0, wall(-100 * time.Second), true}, {81 * time.Second, wall(-100 * time.Second), false}}},
		{"old from before the start", []step{{0, wall(-time.Hour), false}, {time.Second, wall(time.Second), true}}},
		{"clock an hour back", []step{{0, wall(time.Hour), true}, {181 * time.Second, wall(time.Hour), false}}},
		{"clock an hour on, new handshakes", []step{{0, wall(0), true}, {200 * time.Second, wall(-time.Hour), true}}},
		{"peer recreated", []step{{0, wall(0), true}, {time.Second, time.Time{}, false}, {2 * time.Second, wall(2 * time.Second), true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := handshakes{}
			for _, s := range tt.steps {
				if have := h.record("peer", s.told, start.Add(s.after)); have != s.want {
					t.Errorf("after %s: recent %t, want %t", s.after, have, s.want)
				}
			}
		})
	}
}
