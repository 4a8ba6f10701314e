package health

import (
	"testing"
	"time"
)

// TestIsolationRecovery checks that an isolated gateway gets the rank of the others only after it
// has received packets for isolationRecovery without a break. Until then it ranks above isolated
// ones.
func TestIsolationRecovery(t *testing.T) {
	t.Parallel()
	s := Settings{Interval: 250 * time.Millisecond, Misses: 3}
	now := time.Unix(1_000_000, 0)
	m := isolationDetector{otherNodes: 2}
	packet := func(after time.Duration) bool {
		now = now.Add(after)
		return m.onPacket(now, s)
	}
	if packet(0) || m.isolated {
		t.Fatal("isolated at first")
	}
	if now = now.Add(isolationTimeout(s)); !m.check(now, s) {
		t.Fatal("not isolated after a silence as long as detection of a death")
	}
	if m.rank() != Isolated || !packet(0) || m.rank() != Draining {
		t.Fatalf("%v after the first packet", m.rank())
	}
	elapsed := time.Duration(0)
	for ; elapsed < isolationRecovery-250*time.Millisecond; elapsed += 250 * time.Millisecond {
		if packet(250 * time.Millisecond); !m.isolated {
			t.Fatalf("recovered after %v", elapsed)
		}
	}
	if now = now.Add(isolationTimeout(s)); !m.check(now, s) || m.rank() != Isolated {
		t.Fatalf("%v after another silence", m.rank())
	}
	if packet(isolationTimeout(s)); m.rank() != Draining {
		t.Fatalf("%v after a break", m.rank())
	}
	for elapsed = 0; m.isolated && elapsed < 2*isolationRecovery; elapsed += 250 * time.Millisecond {
		packet(250 * time.Millisecond)
	}
	if elapsed < isolationRecovery || m.isolated {
		t.Fatalf("isolated = %v after %v of packets without a break, want false after %v", m.isolated, elapsed, isolationRecovery)
	}
	if packet(time.Millisecond) {
		t.Fatal("reported twice")
	}
}

// TestAllWereIsolated checks that after an outage of all gateways of a cluster, the one in use
// loses its cluster again before they recovered. The others then rank above it.
func TestAllWereIsolated(t *testing.T) {
	t.Parallel()
	m := newSim(t, defaultSettings, 3, 3)
	inside := func(from, to *simNode) bool { return from.name.Cluster == "b" && to.name.Cluster == "b" }
	m.lost = func(from, to *simNode, tunnel bool) bool { return !tunnel && inside(from, to) }
	m.run(time.Second)
	m.lost = nil
	m.run(isolationRecovery / 2)
	before := m.activeLink("a", "b")
	if before.Rank != Draining {
		t.Fatalf("%+v shortly after the outage", before)
	}
	isolated := m.node("b", before.Remote)
	m.lost = func(from, to *simNode, tunnel bool) bool {
		return !tunnel && inside(from, to) && (from == isolated || to == isolated)
	}
	m.run(isolationTimeout(defaultSettings) + 50*time.Millisecond)
	if c := m.node("a", "worker").paths["b"]; c.Remote == before.Remote {
		t.Errorf("still at the isolated %+v", c)
	}
}

// TestRecoveringBelowUnsteady checks that links that failed often rank above a recovering gateway,
// which may not reach its whole cluster yet.
func TestRecoveringBelowUnsteady(t *testing.T) {
	t.Parallel()
	m := isolationDetector{otherNodes: 2, isolated: true}
	m.onPacket(epoch, defaultSettings)
	if r := m.rank(); r >= Unsteady || r <= Isolated {
		t.Errorf("a recovering gateway is %v", r)
	}
}
