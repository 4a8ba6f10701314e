package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Sorts of entries. A safety violation is forbidden at every moment; late means a late
// recovery. Notes are no violations: they help to explain them.
const (
	safety    = "safety"
	late      = "late"
	noteEntry = "note"
)

// violation is a broken invariant.
type violation struct {
	at   time.Time
	sort string
	text string
}

// violationLog collects violations, and counts repeated ones. It is safe for concurrent use.
type violationLog struct {
	mu    sync.Mutex
	fresh []violation
	notes []violation
	count map[string]int
}

func newViolationLog() *violationLog { return &violationLog{count: map[string]int{}} }

// maxSame bounds the entries with the same text in a round.
const maxSame = 3

// maxNotes bounds the notes.
const maxNotes = 200

func (l *violationLog) add(sort, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	same, _, _ := strings.Cut(text, " bytes:") // followed by the content of a packet
	l.count[same]++
	switch {
	case l.count[same] > maxSame:
	case sort == noteEntry:
		// The last notes precede the violation that they explain.
		l.notes = append(l.notes[max(0, len(l.notes)-maxNotes+1):], violation{time.Now(), sort, text})
	default:
		l.fresh = append(l.fresh, violation{time.Now(), sort, text})
	}
}

// drain returns and removes all entries.
func (l *violationLog) drain() (violations, notes []violation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	violations, notes = l.fresh, l.notes
	l.fresh, l.notes = nil, nil
	clear(l.count)
	return violations, notes
}
