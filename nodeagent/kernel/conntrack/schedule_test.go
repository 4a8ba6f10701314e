package conntrack

import (
	"errors"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// nextDue returns the offset from start of the next due task of a schedule.
func nextDue(t *testing.T, s schedule) time.Duration {
	t.Helper()
	due, ok := s.next()
	if !ok {
		t.Fatal("no round is due")
	}
	return due.Sub(start)
}

func TestRounds(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.moved(start, "g2", remotePrefixes)
	last := time.Duration(-1)
	for range 12 {
		due := nextDue(t, s)
		// The new gateway expires a refreshed UDP flow after 30 s, and a TCP flow after 300 s.
		if due <= last || last >= 0 && due < 100*time.Second && due-last > 28*time.Second || due-last > 240*time.Second {
			t.Fatalf("a round at %s after one at %s", due, last)
		}
		last = due
		now := start.Add(due)
		moves, _ := s.due(now)
		if len(moves) != 1 {
			t.Fatalf("%d moves due at %s", len(moves), due)
		}
		s.finishMoves(now, moves, map[string]int{"g2": 1}, nil)
	}
	moves, _ := s.due(start.Add(nextDue(t, s)))
	s.finishMoves(start.Add(last), moves, nil, errors.New("no memory"))
	nextDue(t, s) // a failed round is not the last
	moves, _ = s.due(start.Add(24 * time.Hour))
	s.finishMoves(start.Add(24*time.Hour), moves, nil, nil)
	if due, ok := s.next(); ok {
		t.Errorf("a round at %s although no flow is idle", due)
	}
}

// TestFirstRoundStays runs the second round even if the first found no flow.
func TestFirstRoundStays(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.moved(start, "g2", remotePrefixes)
	moves, _ := s.due(start)
	s.finishMoves(start, moves, nil, nil)
	if due := nextDue(t, s); due != time.Second {
		t.Errorf("second round at %s", due)
	}
}

func TestMovedAgain(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.moved(start, "g2", remotePrefixes)
	moves, _ := s.due(start)
	s.moved(start.Add(time.Second), "g2", remotePrefixes)
	s.finishMoves(start.Add(2*time.Second), moves, nil, nil)
	if due := nextDue(t, s); due != time.Second {
		t.Errorf("the move during a round is due at %s, want one second later", due)
	}
}

func TestNeedsRefresh(t *testing.T) {
	t.Parallel()
	m := &pathMove{movedAt: start, round: 0}
	now := start.Add(25 * time.Second)
	if !m.needsRefresh(now, 0, true) {
		t.Error("the first round leaves out a busy flow")
	}
	m.round = 3
	for idle, want := range map[time.Duration]bool{0: false, 20 * time.Second: false, 24 * time.Second: true, time.Hour: true} {
		if got := m.needsRefresh(now, idle, true); got != want {
			t.Errorf("25 s after the move a flow without a packet for %s: %v", idle, got)
		}
	}
	if !m.needsRefresh(now, 0, false) {
		t.Error("a flow of unknown age is left out")
	}
}

func TestPurgeTimes(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.released(start, "g2", remotePrefixes)
	checkAll(t, s, start, false)
	s.released(start.Add(10*time.Second), "g2", remotePrefixes)
	var dues []time.Duration
	for range 4 {
		due := nextDue(t, s)
		dues = append(dues, due)
		if _, purges := s.due(start.Add(due)); len(purges) != 1 {
			t.Fatalf("%d purges due at %s", len(purges), due)
		}
	}
	want := []time.Duration{15 * time.Second, 6 * time.Minute, 66 * time.Minute, 126 * time.Minute}
	for i := range want {
		if dues[i] != want[i] {
			t.Errorf("purges at %v, want %v", dues, want)
			break
		}
	}
	purge := s.purges["g2"]
	if q := purge.minIdle(start.Add(15 * time.Second)); q != 13*time.Second {
		t.Errorf("quiet for %s at the first time, want 13s", q)
	}
	if q := purge.minIdle(start.Add(time.Hour)); q != maxIdle {
		t.Errorf("quiet for %s after an hour, want %s", q, maxIdle)
	}
	s.takenOver(start, "g2", remotePrefixes)
	checkAll(t, s, start, true)
	if due, ok := s.next(); ok {
		t.Errorf("a task is due at %s after the path returned", due)
	}
}

// checkAll runs all checks of a link change.
func checkAll(t *testing.T, s schedule, start time.Time, own bool) {
	t.Helper()
	for check, after := range checkTimes {
		if changes := s.dueChanges(start.Add(after - 1)); after > 0 && len(changes) != 0 {
			t.Errorf("check %d: %v too early", check, changes)
		}
		for pass := range maxPasses {
			changes := s.dueChanges(start.Add(after))
			if len(changes) != 1 || changes[0].usesOwnLink != own || changes[0].checksDone != check || changes[0].isFirst() != (check+pass == 0) {
				t.Fatalf("check %d, pass %d: changes %v", check, pass, changes)
			}
			s.finishCheck(changes, true)
		}
	}
	if changes := s.dueChanges(start.Add(time.Hour)); len(changes) != 0 {
		t.Errorf("link changes %v are checked too often", changes)
	}
}

// TestReplacedChange replaces a link change while its flows are checked.
func TestReplacedChange(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.takenOver(start, "g2", remotePrefixes)
	s.finishCheck(s.dueChanges(start), false)
	s.linkAvailable(start, "g2", remotePrefixes)
	others := s.dueChanges(start)
	if len(others) != 1 || !others[0].fromNodesOnly {
		t.Errorf("handed-over traffic waits for the next check: %v", others)
	}
	s.released(start.Add(time.Second/2), "g2", remotePrefixes)
	late := start.Add(time.Second / 2)
	s.finishCheck(others, true)
	changes := s.dueChanges(late)
	if len(changes) != 1 || changes[0].usesOwnLink || !changes[0].isFirst() {
		t.Errorf("changes %v, want the new one", changes)
	}
	s.takenOver(late, "g2", remotePrefixes)
	s.finishCheck(changes, true)
	if again := s.dueChanges(late); len(again) != 1 || !again[0].usesOwnLink || !again[0].isFirst() {
		t.Errorf("changes %v, want the newest", again)
	}
}

// TestAddedClusterIsCheckedOnce checks that a cluster without a path before gets one check, repeated
// while it finds stale entries, and that its link needs no other one.
func TestAddedClusterIsCheckedOnce(t *testing.T) {
	t.Parallel()
	s := newSchedule()
	s.added(start, "g2", remotePrefixes)
	s.linkAvailable(start, "g2", remotePrefixes)
	for _, found := range []bool{true, false} {
		changes := s.dueChanges(start)
		if len(changes) != 1 || changes[0].fromNodesOnly {
			t.Fatalf("due are %v, want one change", changes)
		}
		s.finishCheck(changes, found)
	}
	if at, ok := s.next(); ok {
		t.Errorf("another check is due at %v", at)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	duration := func(flows int) time.Duration {
		var clock time.Duration
		for i := range flows {
			clock += pause(i, clock)
		}
		return clock
	}
	for flows, maxDuration := range map[int]time.Duration{1: 0, burstSize: 0, 1000: 100 * time.Millisecond, 10_000: time.Second} {
		if got := duration(flows); got > maxDuration {
			t.Errorf("%d refresh packets take %s, want at most %s", flows, got, maxDuration)
		}
	}
	if got := duration(10_000); got < 500*time.Millisecond {
		t.Errorf("10000 refresh packets take %s, want a pause", got)
	}
}
