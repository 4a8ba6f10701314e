package report

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// TestUnknownSources checks that only recent drops of unknown sources are reported.
func TestUnknownSources(t *testing.T) {
	t.Parallel()
	var u unknownSources
	begin := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after   time.Duration
		reason  string
		packets uint64
		want    bool
	}{
		{0, desired.DropUnknownSource, 7, false}, // of the previous agent
		{3 * time.Second, desired.DropUnknownSource, 7, false},
		{6 * time.Second, desired.DropLeak, 9, false},
		{9 * time.Second, desired.DropUnknownSource, 8, true},
		{68 * time.Second, desired.DropUnknownSource, 8, true},
		{69 * time.Second, desired.DropUnknownSource, 8, false},
		{72 * time.Second, desired.DropUnknownSource, 0, false}, // the rules were rewritten
		{75 * time.Second, desired.DropUnknownSource, 1, true},
	} {
		if got := u.recent([]status.Dropped{{Reason: step.reason, Packets: step.packets}}, begin.Add(step.after)); got != step.want {
			t.Errorf("after %s with %d packets (%s): %v, want %v", step.after, step.packets, step.reason, got, step.want)
		}
	}
	own := &fabric.Cluster{Name: "c2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	p := unknownSource("c2n1", own)
	for _, part := range []string{"c2n1", "10.9.0.0/16", "podCIDRs", "hawser diagnose"} {
		if !strings.Contains(p.Text, part) {
			t.Errorf("missing %q in %q", part, p.Text)
		}
	}
}
