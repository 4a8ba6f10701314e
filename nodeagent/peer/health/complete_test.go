package health

import (
	"testing"
	"time"
)

// TestComplete restarts an agent in a cluster of three gateways. Its snapshot is complete once the
// last probed gateway replied or died.
func TestComplete(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"worker", "a-gw1"} {
		for _, dead := range []string{"", "a-gw0"} {
			m := newSim(t, defaultSettings, 3, 3)
			if dead != "" {
				m.node("a", dead).stopped = true
				m.run(2 * time.Second)
			}
			n := m.node("a", name)
			m.start(n, defaultSettings)
			if n.Snapshot().Complete() {
				t.Errorf("%s: complete at the start", name)
			}
			m.run(2 * defaultSettings.Interval)
			if dead == "" != n.Snapshot().Complete() {
				t.Errorf("%s: complete %t after two intervals, dead %q", name, n.Snapshot().Complete(), dead)
			}
			m.run(4 * defaultSettings.Interval)
			if !n.Snapshot().Complete() {
				t.Errorf("%s: not complete, dead %q: %+v", name, dead, n.Snapshot().Links)
			}
		}
	}
}
