// Package trigger wakes loops on events and after a time.
package trigger

import (
	"context"
	"time"
)

// Trigger is a channel of size one that wakes a loop. Several calls of Fire before the loop receives
// have the effect of one.
type Trigger chan struct{}

// New returns a Trigger.
func New() Trigger { return make(Trigger, 1) }

// Fire wakes the loop. It never blocks.
func (t Trigger) Fire() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// Run calls step at once, after each Fire, and when the time that the last call returned is over. It
// returns when ctx is done.
func (t Trigger) Run(ctx context.Context, step func() (next time.Duration)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t:
		case <-timer.C:
		}
		timer.Reset(step())
	}
}
