package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Sorts of violations. Those of safety hold at every moment; those of time say
// that something came back late.
const (
	safety = "safety"
	late   = "late"
)

// violation is something that must not be.
type violation struct {
	at   time.Time
	sort string
	text string
}

// ledger collects violations; it may be written from any goroutine. What repeats
// is counted.
type ledger struct {
	mu    sync.Mutex
	fresh []violation
	count map[string]int
}

func newLedger() *ledger { return &ledger{count: map[string]int{}} }

// mostOfOne is how many of the same text are kept in a round.
const mostOfOne = 3

func (l *ledger) add(sort, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	same, _, _ := strings.Cut(text, " bytes:") // what follows is a packet's content
	l.count[same]++
	if l.count[same] <= mostOfOne {
		l.fresh = append(l.fresh, violation{time.Now(), sort, text})
	}
}

// take gives what was added since the last call.
func (l *ledger) take() []violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.fresh
	l.fresh = nil
	clear(l.count)
	return out
}
