package timerqueue_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
)

type thing struct {
	timerqueue.Entry
	name int
}

// TestQueue compares a queue with a map, in which the test searches the first entry.
func TestQueue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var q timerqueue.Queue[*thing]
	things := make([]*thing, 50)
	for i := range things {
		things[i] = &thing{name: i}
	}
	held := map[*thing]time.Time{}
	for range 20000 {
		one := things[r.IntN(len(things))]
		if r.IntN(3) == 0 {
			q.Remove(one)
			delete(held, one)
		} else {
			at := begin.Add(time.Duration(r.IntN(1000)) * time.Second)
			q.Schedule(one, at)
			held[one] = at
		}
		var want time.Time
		for _, at := range held {
			if want.IsZero() || at.Before(want) {
				want = at
			}
		}
		first, ok := q.First()
		if ok != (len(held) > 0) || ok && (!first.Due().Equal(want) || !held[first].Equal(want)) {
			t.Fatalf("first %v at %v, want %v of %d", first, ok, want, len(held))
		}
		if !ok {
			continue
		}
		if _, early := q.Next(want.Add(-1)); early {
			t.Fatal("next before its time")
		}
		if next, now := q.Next(want); !now || next != first {
			t.Fatal("not next at its time")
		}
		if wait := q.UntilNext(want.Add(-time.Second), time.Minute); wait != time.Second {
			t.Fatalf("waits %s, want 1s", wait)
		}
	}
	if wait := new(timerqueue.Queue[*thing]).UntilNext(begin, time.Minute); wait != time.Minute {
		t.Errorf("an empty queue waits %s", wait)
	}
}
