package conntrack

import (
	"errors"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at advances a plan to its next due time and returns its offset from begin.
func at(t *testing.T, p schedule) time.Duration {
	t.Helper()
	due, ok := p.next()
	if !ok {
		t.Fatal("the plan is over")
	}
	return due.Sub(begin)
}

func TestRounds(t *testing.T) {
	t.Parallel()
	p := newPlan()
	p.moved(begin, "g2", remote)
	last := time.Duration(-1)
	for range 12 {
		due := at(t, p)
		// What the new gateway learned from a knock of UDP ends after 30 s, of TCP after 300 s.
		if due <= last || last >= 0 && due < 100*time.Second && due-last > 28*time.Second || due-last > 240*time.Second {
			t.Fatalf("a round at %s after one at %s", due, last)
		}
		last = due
		now := begin.Add(due)
		moves, _ := p.due(now)
		if len(moves) != 1 {
			t.Fatalf("%d moves due at %s", len(moves), due)
		}
		p.finishMoves(now, moves, map[string]int{"g2": 1}, nil)
	}
	moves, _ := p.due(begin.Add(at(t, p)))
	p.finishMoves(begin.Add(last), moves, nil, errors.New("no memory"))
	at(t, p) // a round that failed is not the last
	moves, _ = p.due(begin.Add(24 * time.Hour))
	p.finishMoves(begin.Add(24*time.Hour), moves, nil, nil)
	if due, ok := p.next(); ok {
		t.Errorf("a round at %s though nothing is quiet", due)
	}
}

// TestFirstRoundStays runs the second round even if the first met no flow.
func TestFirstRoundStays(t *testing.T) {
	t.Parallel()
	p := newPlan()
	p.moved(begin, "g2", remote)
	moves, _ := p.due(begin)
	p.finishMoves(begin, moves, nil, nil)
	if due := at(t, p); due != time.Second {
		t.Errorf("second round at %s", due)
	}
}

func TestMovedAgain(t *testing.T) {
	t.Parallel()
	p := newPlan()
	p.moved(begin, "g2", remote)
	moves, _ := p.due(begin)
	p.moved(begin.Add(time.Second), "g2", remote)
	p.finishMoves(begin.Add(2*time.Second), moves, nil, nil)
	if due := at(t, p); due != time.Second {
		t.Errorf("the move during a round is due at %s, want its own time", due)
	}
}

func TestWants(t *testing.T) {
	t.Parallel()
	m := &pathMove{at: begin, round: 0}
	now := begin.Add(25 * time.Second)
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

func TestDepartures(t *testing.T) {
	t.Parallel()
	p := newPlan()
	p.released(begin, "g2", remote)
	takeTurn(t, p, begin, false)
	p.released(begin.Add(10*time.Second), "g2", remote)
	var dues []time.Duration
	for range 4 {
		due := at(t, p)
		dues = append(dues, due)
		if _, left := p.due(begin.Add(due)); len(left) != 1 {
			t.Fatalf("%d departures due at %s", len(left), due)
		}
	}
	want := []time.Duration{15 * time.Second, 6 * time.Minute, 66 * time.Minute, 126 * time.Minute}
	for i := range want {
		if dues[i] != want[i] {
			t.Errorf("forgets at %v, want %v", dues, want)
			break
		}
	}
	d := p.left["g2"]
	if q := d.quiet(begin.Add(15 * time.Second)); q != 13*time.Second {
		t.Errorf("quiet for %s at the first time, want 13s", q)
	}
	if q := d.quiet(begin.Add(time.Hour)); q != ended {
		t.Errorf("quiet for %s after an hour, want %s", q, ended)
	}
	p.takenOver(begin, "g2", remote)
	takeTurn(t, p, begin, true)
	if due, ok := p.next(); ok {
		t.Errorf("something is due at %s after the path came back", due)
	}
}

// takeTurn takes a turn at each of the times at which its flows are looked at.
func takeTurn(t *testing.T, p schedule, begin time.Time, own bool) {
	t.Helper()
	for look, after := range checkTimes {
		if turns := p.dueChanges(begin.Add(after - 1)); after > 0 && len(turns) != 0 {
			t.Errorf("look %d: %v before the time", look, turns)
		}
		for pass := range maxPasses {
			turns := p.dueChanges(begin.Add(after))
			if len(turns) != 1 || turns[0].nowOwn != own || turns[0].look != look || turns[0].isFirst() != (look+pass == 0) {
				t.Fatalf("look %d, pass %d: turns %v", look, pass, turns)
			}
			p.checked(turns, true)
		}
	}
	if turns := p.dueChanges(begin.Add(time.Hour)); len(turns) != 0 {
		t.Errorf("link changes %v are checked without end", turns)
	}
}

// TestTurnAgain replaces a link change while its flows are checked.
func TestTurnAgain(t *testing.T) {
	t.Parallel()
	p := newPlan()
	p.takenOver(begin, "g2", remote)
	p.checked(p.dueChanges(begin), false)
	p.transits(begin, "g2", remote)
	others := p.dueChanges(begin)
	if len(others) != 1 || !others[0].handedOverOnly {
		t.Errorf("what others hand over waits for the next look: %v", others)
	}
	p.released(begin.Add(time.Second/2), "g2", remote)
	late := begin.Add(time.Second / 2)
	p.checked(others, true)
	turns := p.dueChanges(late)
	if len(turns) != 1 || turns[0].nowOwn || !turns[0].isFirst() {
		t.Errorf("turns %v, want the new one", turns)
	}
	p.takenOver(late, "g2", remote)
	p.checked(turns, true)
	if again := p.dueChanges(late); len(again) != 1 || !again[0].nowOwn || !again[0].isFirst() {
		t.Errorf("turns %v, want the newest", again)
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
			t.Errorf("%d knocks take %s, want %s at most", flows, got, most)
		}
	}
	if got := took(10_000); got < 500*time.Millisecond {
		t.Errorf("10000 knocks take %s: no pace at all", got)
	}
}
