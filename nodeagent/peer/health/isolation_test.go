package health

import (
	"testing"
	"time"
)

// TestMatesSettle: a gateway that was alone is as good as others only after it has
// heard its cluster for a while without a break, and better than alone until then.
func TestMatesSettle(t *testing.T) {
	t.Parallel()
	s := Settings{Interval: 250 * time.Millisecond, Misses: 3}
	now := time.Unix(1_000_000, 0)
	m := isolationDetector{others: 2}
	hear := func(after time.Duration) bool {
		now = now.Add(after)
		return m.onPacket(now, s)
	}
	if hear(0) || m.isolated {
		t.Fatal("alone at first")
	}
	if now = now.Add(silence(s)); !m.judge(now, s) {
		t.Fatal("not alone when nobody was heard for as long as a death takes")
	}
	if m.rank() != Isolated || !hear(0) || m.rank() != Draining {
		t.Fatalf("%v when the first is heard again", m.rank())
	}
	heard := time.Duration(0)
	for ; heard < isolationRecovery-250*time.Millisecond; heard += 250 * time.Millisecond {
		if hear(250 * time.Millisecond); !m.isolated {
			t.Fatalf("used again after %v", heard)
		}
	}
	if now = now.Add(silence(s)); !m.judge(now, s) || m.rank() != Isolated {
		t.Fatalf("%v when nobody is heard any more", m.rank())
	}
	if hear(silence(s)); m.rank() != Draining {
		t.Fatalf("%v after a break", m.rank())
	}
	for heard = 0; m.isolated && heard < 2*isolationRecovery; heard += 250 * time.Millisecond {
		hear(250 * time.Millisecond)
	}
	if heard < isolationRecovery || m.isolated {
		t.Fatalf("alone = %v after %v of hearing without a break, want no after %v", m.isolated, heard, isolationRecovery)
	}
	if hear(time.Millisecond) {
		t.Fatal("told twice")
	}
}

// TestAllWereAlone: all gateways of a cluster went unheard for a moment, and before
// they count as good again the one in use loses its cluster. The others are better.
func TestAllWereAlone(t *testing.T) {
	t.Parallel()
	m := newSim(t, calm, 3, 3)
	inside := func(from, to *simNode) bool { return from.name.Cluster == "b" && to.name.Cluster == "b" }
	m.lost = func(from, to *simNode, tunnel bool) bool { return !tunnel && inside(from, to) }
	m.run(time.Second)
	m.lost = nil
	m.run(isolationRecovery / 2)
	before := m.agreed("a", "b")
	if before.Rank != Draining {
		t.Fatalf("%+v a moment after the gateways heard nobody", before)
	}
	gone := m.node("b", before.Remote)
	m.lost = func(from, to *simNode, tunnel bool) bool {
		return !tunnel && inside(from, to) && (from == gone || to == gone)
	}
	m.run(silence(calm) + 50*time.Millisecond)
	if c := m.node("a", "worker").paths["b"]; c.Remote == before.Remote {
		t.Errorf("still at %+v, which reaches nobody", c)
	}
}

// TestReturnsBehindUnsteady: links that fell often are still better than a gateway
// that hears its cluster again, but does not reach all of it yet.
func TestReturnsBehindUnsteady(t *testing.T) {
	t.Parallel()
	m := isolationDetector{others: 2, isolated: true}
	m.onPacket(epoch, calm)
	if r := m.rank(); r >= Unsteady || r <= Isolated {
		t.Errorf("a gateway that returns is %v", r)
	}
}
