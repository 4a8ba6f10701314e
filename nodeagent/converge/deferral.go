package converge

import (
	"errors"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Deferrer is a Kind that several agents write with the same result. Another agent writes first.
// This agent makes only the changes that are still needed after a delay.
type Deferrer interface {
	// WriteDelay returns how long a change must have been needed before it is made; 0 = at
	// once.
	WriteDelay() time.Duration
}

// ErrDeferred means that another agent should make the change. It is not a failure.
var ErrDeferred = errors.New("deferred to another gateway")

const (
	// freeRewrites is the number of times that a writer without delay repeats a reverted change
	// at once. After that its delay grows.
	freeRewrites = 3
	// minWriteDelay is the first delay of a writer without a delay of its own.
	minWriteDelay = time.Second
	maxWriteDelay = 10 * time.Minute
	// writeMemory is the time for which a write counts.
	writeMemory = 20 * time.Minute
)

// deferral is the history of one key of a Deferrer.
type deferral struct {
	signature   string
	neededSince time.Time // zero = the change is not needed
	writes      int       // of the same change
	lastWrite   time.Time
}

// delay returns the time for which the change must be needed first. It doubles with each write
// that another writer reverted, so that two writers that disagree write ever more rarely.
func (d *deferral) delay(base time.Duration) time.Duration {
	if base == 0 && d.writes < freeRewrites {
		return 0
	}
	delay := max(base, minWriteDelay)
	for range d.writes {
		delay = min(2*delay, maxWriteDelay)
	}
	return delay
}

// trackDeferrals records when each change became necessary.
func (s *stage[D, S]) trackDeferrals(changes []diff.Change[S], now time.Time) {
	if _, ok := s.kind.(Deferrer); !ok {
		return
	}
	needed := make(map[string]bool, len(changes))
	for _, c := range changes {
		needed[c.Key] = true
		d, known := s.deferrals[c.Key]
		if sig := signature(c); !known || d.signature != sig {
			d = &deferral{signature: sig}
			s.deferrals[c.Key] = d
		}
		if d.neededSince.IsZero() {
			d.neededSince = now
		}
	}
	for key, d := range s.deferrals {
		if needed[key] {
			continue
		}
		if d.neededSince = (time.Time{}); d.writes == 0 || now.Sub(d.lastWrite) > writeMemory {
			delete(s.deferrals, key)
		}
	}
}

// skipDeferred returns the changes that are due, and reports the others with the time of the
// first one.
func (s *stage[D, S]) skipDeferred(p *pass[D], changes []diff.Change[S]) []diff.Change[S] {
	deferrer, ok := s.kind.(Deferrer)
	if !ok {
		return changes
	}
	var ready []diff.Change[S]
	for _, c := range changes {
		d, known := s.deferrals[c.Key]
		if !known {
			// It became necessary after the forward direction; the next pass tracks it.
			continue
		}
		at := d.neededSince.Add(d.delay(deferrer.WriteDelay()))
		if !at.After(p.now) {
			ready = append(ready, c)
			continue
		}
		p.report.Deferred = append(p.report.Deferred, Problem{Kind: s.Name(), Key: c.Key, Err: ErrDeferred})
		if p.report.Next.IsZero() || at.Before(p.report.Next) {
			p.report.Next = at
		}
	}
	return ready
}

// recordWrite counts a change that was made.
func (s *stage[D, S]) recordWrite(c diff.Change[S], now time.Time) {
	if d, known := s.deferrals[c.Key]; known {
		d.writes++
		d.lastWrite, d.neededSince = now, time.Time{}
	}
}
