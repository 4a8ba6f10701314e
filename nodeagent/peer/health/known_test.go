package health

import (
	"testing"
	"time"
)

// TestKnown has an agent begin anew in a cluster of three gateways: what it takes for granted
// ends with the last of those that it probes, and with one that is dead.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"worker", "a-gw1"} {
		for _, dead := range []string{"", "a-gw0"} {
			m := newSim(t, calm, 3, 3)
			if dead != "" {
				m.node("a", dead).off = true
				m.run(2 * time.Second)
			}
			n := m.node("a", name)
			m.start(n, calm)
			if n.Snapshot().Complete() {
				t.Errorf("%s: all is known at the start", name)
			}
			m.run(2 * calm.Interval)
			if dead == "" != n.Snapshot().Complete() {
				t.Errorf("%s: all is known %t after two intervals, where %q is dead", name, n.Snapshot().Complete(), dead)
			}
			m.run(4 * calm.Interval)
			if !n.Snapshot().Complete() {
				t.Errorf("%s: something is not known, where %q is dead: %+v", name, dead, n.Snapshot().Links)
			}
		}
	}
}
