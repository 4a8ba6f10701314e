package report

import (
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
)

// TestLostFeeds checks that a cluster without a feed is reported only if its path has been up for
// stale.
func TestLostFeeds(t *testing.T) {
	t.Parallel()
	const stale = 30 * time.Second
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		rank     string
		up       time.Duration
		received bool
		want     []string
	}{
		{"feed received", "good", time.Hour, true, nil},
		{"no feed", "good", time.Hour, false, []string{"g2"}},
		{"no feed, unsteady path", "unsteady", time.Hour, false, []string{"g2"}},
		{"path down", "down", time.Hour, false, nil},
		{"path up just now", "good", stale - time.Nanosecond, false, nil},
		{"path up for the time of a stale feed", "good", stale, false, []string{"g2"}},
	} {
		live := map[string]model.ClusterState{"g3": {Cluster: "g3"}}
		if tt.received {
			live["g2"] = model.ClusterState{Cluster: "g2"}
		}
		paths := []status.Path{{Cluster: "g2", Rank: tt.rank, Since: now.Add(-tt.up)}, {Cluster: "g3", Rank: "good", Since: now.Add(-time.Hour)}}
		if have := lostFeeds(paths, live, stale, now); !slices.Equal(have, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, have, tt.want)
		}
	}
}

// TestRoundOverdue checks that an agent that hangs is reported, and an agent between two rounds is
// not.
func TestRoundOverdue(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	last := converge.Report{At: begin, Took: 5 * time.Second}
	for _, tt := range []struct {
		resync, since time.Duration
		want          bool
	}{
		{0, converge.Resync + 5*time.Second, false},
		{0, converge.Resync + roundOverdueTime + 5*time.Second, false},
		{0, converge.Resync + roundOverdueTime + 5*time.Second + 1, true},
		{time.Second, time.Second + roundOverdueTime + 5*time.Second, false},
		{time.Second, time.Second + roundOverdueTime + 5*time.Second + 1, true},
	} {
		if have := roundOverdue(last, tt.resync, begin.Add(tt.since)); have != tt.want {
			t.Errorf("resync %s, %s after the last round: %t, want %t", tt.resync, tt.since, have, tt.want)
		}
	}
}
