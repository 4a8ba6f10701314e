package conntrack

import (
	"errors"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at advances a plan to its next due time and returns its offset from start.
func at(t *testing.T, p schedule) time.Duration {
	t.Helper()
	due, ok := p.next()
	if !ok {
		t.Fatal("no round is due")
	}
	return due.Sub(start)
}

func TestRounds(t *testing.T) {
	t.Parallel()
	p := newSchedule()
	p.moved(start, "g2", remote)
	last := time.Duration(-1)
	for range 12 {
		due := at(t, p)
		// The new gateway purgeTimes a refreshed UDP flow after 30 s, and a TCP flow after 300 s.
		if due <= last || last >= 0 && due < 100*time.Second && due-last > 28*time.Second || due-last > 240*time.Second {
			t.Fatalf("a round at %s after one at %s", due, last)
		}
		last = due
		now := start.Add(due)
		moves, _ := p.due(now)
		if len(moves) != 1 {
			t.Fatalf("%d moves due at %s", len(moves), due)
		}
		p.finishMoves(now, moves, map[string]int{"g2": 1}, nil)
	}
	moves, _ := p.due(start.Add(at(t, p)))
	p.finishMoves(start.Add(last), moves, nil, errors.New("no memory"))
	at(t, p) // a failed round is not the last
	moves, _ = p.due(start.Add(24 * time.Hour))
	p.finishMoves(start.Add(24*time.Hour), moves, nil, nil)
	if due, ok := p.next(); ok {
		t.Errorf("a round at %s although no flow is idle", due)
	}
}

// TestFirstRoundStays runs the second round even if the first found no flow.
func TestFirstRoundStays(t *testing.T) {
	t.Parallel()
	p := newSchedule()
	p.moved(start, "g2", remote)
	moves, _ := p.due(start)
	p.finishMoves(start, moves, nil, nil)
	if due := at(t, p); due != time.Second {
		t.Errorf("second round at %s", due)
	}
}

func TestMovedAgain(t *testing.T) {
	t.Parallel()
	p := newSchedule()
	p.moved(start, "g2", remote)
	moves, _ := p.due(start)
	p.moved(start.Add(time.Second), "g2", remote)
	p.finishMoves(start.Add(2*time.Second), moves, nil, nil)
	if due := at(t, p); due != time.Second {
		t.Errorf("the move during a round is due at %s, want one second later", due)
	}
}

func TestNeedsRefresh(t *testing.T) {
	t.Parallel()
	m := &pathMove{at: start, round: 0}
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
	p := newSchedule()
	p.released(start, "g2", remote)
	checkAll(t, p, start, false)
	p.released(start.Add(10*time.Second), "g2", remote)
	var dues []time.Duration
	for range 4 {
		due := at(t, p)
		dues = append(dues, due)
		if _, purges := p.due(start.Add(due)); len(purges) != 1 {
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
	d := p.purges["g2"]
	if q := d.minIdle(start.Add(15 * time.Second)); q != 13*time.Second {
		t.Errorf("quiet for %s at the first time, want 13s", q)
	}
	if q := d.minIdle(start.Add(time.Hour)); q != ended {
		t.Errorf("quiet for %s after an hour, want %s", q, ended)
	}
	p.takenOver(start, "g2", remote)
	checkAll(t, p, start, true)
	if due, ok := p.next(); ok {
		t.Errorf("a task is due at %s after the path returned", due)
	}
}

// checkAll runs all checks of a link change.
func checkAll(t *testing.T, p schedule, start time.Time, own bool) {
	t.Helper()
	for check, after := range checkTimes {
		if changes := p.dueChanges(start.Add(after - 1)); after > 0 && len(changes) != 0 {
			t.Errorf("check %d: %v too early", check, changes)
		}
		for pass := range maxPasses {
			changes := p.dueChanges(start.Add(after))
			if len(changes) != 1 || changes[0].nowOwn != own || changes[0].checks != check || changes[0].isFirst() != (check+pass == 0) {
				t.Fatalf("check %d, pass %d: changes %v", check, pass, changes)
			}
			p.checked(changes, true)
		}
	}
	if changes := p.dueChanges(start.Add(time.Hour)); len(changes) != 0 {
		t.Errorf("link changes %v are checked too often", changes)
	}
}

// TestReplacedChange replaces a link change while its flows are checked.
func TestReplacedChange(t *testing.T) {
	t.Parallel()
	p := newSchedule()
	p.takenOver(start, "g2", remote)
	p.checked(p.dueChanges(start), false)
	p.linkAvailable(start, "g2", remote)
	others := p.dueChanges(start)
	if len(others) != 1 || !others[0].fromNodesOnly {
		t.Errorf("handed-over traffic waits for the next check: %v", others)
	}
	p.released(start.Add(time.Second/2), "g2", remote)
	late := start.Add(time.Second / 2)
	p.checked(others, true)
	changes := p.dueChanges(late)
	if len(changes) != 1 || changes[0].nowOwn || !changes[0].isFirst() {
		t.Errorf("changes %v, want the new one", changes)
	}
	p.takenOver(late, "g2", remote)
	p.checked(changes, true)
	if again := p.dueChanges(late); len(again) != 1 || !again[0].nowOwn || !again[0].isFirst() {
		t.Errorf("changes %v, want the newest", again)
	}
}

// TestAddedClusterIsCheckedOnce checks that a cluster without a path before gets one check, repeated
// while it finds stale entries, and that its link needs no other one.
func TestAddedClusterIsCheckedOnce(t *testing.T) {
	t.Parallel()
	p := newSchedule()
	p.added(start, "g2", remote)
	p.linkAvailable(start, "g2", remote)
	for _, found := range []bool{true, false} {
		changes := p.dueChanges(start)
		if len(changes) != 1 || changes[0].fromNodesOnly {
			t.Fatalf("due are %v, want one change", changes)
		}
		p.checked(changes, found)
	}
	if at, ok := p.next(); ok {
		t.Errorf("another check is due at %v", at)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	took := func(flows int) time.Duration {
		var clock time.Duration
		for i := range flows {
			clock += pause(i, clock)
		}
		return clock
	}
	for flows, most := range map[int]time.Duration{1: 0, burst: 0, 1000: 100 * time.Millisecond, 10_000: time.Second} {
		if got := took(flows); got > most {
			t.Errorf("%d refresh packets take %s, want at most %s", flows, got, most)
		}
	}
	if got := took(10_000); got < 500*time.Millisecond {
		t.Errorf("10000 refresh packets take %s, want a pause", got)
	}
}
