package report

import (
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
)

// TestRecentDrops checks that only recent drops are reported, by their reason.
func TestRecentDrops(t *testing.T) {
	t.Parallel()
	var d recentDrops
	begin := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after   time.Duration
		reason  string
		packets uint64
		want    bool
	}{
		{0, desired.DropUnknownSource, 7, false}, // counted before this agent started
		{3 * time.Second, desired.DropUnknownSource, 7, false},
		{6 * time.Second, desired.DropLeak, 9, false},
		{9 * time.Second, desired.DropUnknownSource, 8, true},
		{68 * time.Second, desired.DropUnknownSource, 8, true},
		{69 * time.Second, desired.DropUnknownSource, 8, false},
		{72 * time.Second, desired.DropUnknownSource, 0, false}, // the rules were rewritten
		{75 * time.Second, desired.DropUnknownSource, 1, true},
		{78 * time.Second, desired.DropQuota, 1, true}, // of another reason
	} {
		got := d.reasons([]status.Dropped{{Reason: step.reason, Packets: step.packets}}, begin.Add(step.after))
		if got[desired.DropUnknownSource] != step.want || got[desired.DropQuota] {
			t.Errorf("after %s with %d packets (%s): %v, want %v", step.after, step.packets, step.reason, got, step.want)
		}
	}
}
