package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Sorts of entries. Those of safety hold at every moment; those of time say that
// something came back late. Notes are no violations, and help to explain them.
const (
	safety = "safety"
	late   = "late"
	note   = "note"
)

// violation is something that must not be.
type violation struct {
	at   time.Time
	sort string
	text string
}

// violationLog collects violations; it may be written from any goroutine. What repeats
// is counted.
type violationLog struct {
	mu    sync.Mutex
	fresh []violation
	notes []violation
	count map[string]int
}

func newLedger() *violationLog { return &violationLog{count: map[string]int{}} }

// mostOfOne is how many of the same text are kept in a round.
const mostOfOne = 3

// mostNotes is how many notes are kept.
const mostNotes = 200

func (l *violationLog) add(sort, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	same, _, _ := strings.Cut(text, " bytes:") // what follows is a packet's content
	l.count[same]++
	switch {
	case l.count[same] > mostOfOne:
	case sort == note:
		// The last ones are those before what they explain.
		l.notes = append(l.notes[max(0, len(l.notes)-mostNotes+1):], violation{time.Now(), sort, text})
	default:
		l.fresh = append(l.fresh, violation{time.Now(), sort, text})
	}
}

// take gives what was added since the last call.
func (l *violationLog) take() (violations, notes []violation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	violations, notes = l.fresh, l.notes
	l.fresh, l.notes = nil, nil
	clear(l.count)
	return violations, notes
}
