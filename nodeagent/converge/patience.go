package converge

import (
	"errors"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Deferrer is a Kind whose changes others may make as well, who decide the same:
// somebody else goes first, and a change is made only when it is still needed
// after a while.
type Deferrer interface {
	// WriteDelay is how long a change must have been needed before it is made; 0 = at once.
	WriteDelay() time.Duration
}

// ErrDeferred says that a change is left to somebody else for now. It is no failure.
var ErrDeferred = errors.New("left to another for now")

const (
	// undoneFree is how often the first one in turn puts back at once what
	// somebody undid, before it takes more and more time for it.
	undoneFree = 3
	// patienceStep is the pause that grows, where there is no patience to grow from.
	patienceStep    = time.Second
	patienceLongest = 10 * time.Minute
	// undoneMemory is how long it is remembered that a change was made.
	undoneMemory = 20 * time.Minute
)

// turn is the history of one key of a Patient kind.
type turn struct {
	signature string
	since     time.Time // the change is needed; zero = it is not
	made      int       // times that this very change was made
	last      time.Time // when
}

// wait gives how long the change must be needed. It doubles with each time that
// somebody undid it, so that two who do not agree write ever more rarely.
func (t *turn) wait(patience time.Duration) time.Duration {
	if patience == 0 && t.made < undoneFree {
		return 0
	}
	wait := max(patience, patienceStep)
	for range t.made {
		wait = min(2*wait, patienceLongest)
	}
	return wait
}

// await takes note of which changes are needed since when.
func (s *stage[D, S]) await(changes []diff.Change[S], now time.Time) {
	if _, is := s.kind.(Deferrer); !is {
		return
	}
	needed := make(map[string]bool, len(changes))
	for _, c := range changes {
		needed[c.Key] = true
		t, known := s.turns[c.Key]
		if sig := signature(c); !known || t.signature != sig {
			t = &turn{signature: sig}
			s.turns[c.Key] = t
		}
		if t.since.IsZero() {
			t.since = now
		}
	}
	for key, t := range s.turns {
		if needed[key] {
			continue
		}
		if t.since = (time.Time{}); t.made == 0 || now.Sub(t.last) > undoneMemory {
			delete(s.turns, key)
		}
	}
}

// inTurn gives the changes whose time has come.
func (s *stage[D, S]) inTurn(p *pass[D], changes []diff.Change[S]) []diff.Change[S] {
	patient, is := s.kind.(Deferrer)
	if !is {
		return changes
	}
	var due []diff.Change[S]
	for _, c := range changes {
		t, known := s.turns[c.Key]
		if !known {
			// It came up since the forward pass; the next one counts.
			continue
		}
		at := t.since.Add(t.wait(patient.WriteDelay()))
		if !at.After(p.now) {
			due = append(due, c)
			continue
		}
		p.report.Deferred = append(p.report.Deferred, Problem{Kind: s.Name(), Key: c.Key, Err: ErrDeferred})
		if p.report.Next.IsZero() || at.Before(p.report.Next) {
			p.report.Next = at
		}
	}
	return due
}

// took counts a change that was made, for the next turn.
func (s *stage[D, S]) took(c diff.Change[S], now time.Time) {
	if t, known := s.turns[c.Key]; known {
		t.made++
		t.last, t.since = now, time.Time{}
	}
}
