// Package trigger wakes loops that otherwise sleep: something came, or it is time.
package trigger

import (
	"context"
	"time"
)

// Trigger is rung by many and heard by one. Rung again before it was heard, it says
// the same.
type Trigger chan struct{}

// New makes a bell.
func New() Trigger { return make(Trigger, 1) }

// Fire never blocks.
func (b Trigger) Fire() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Run does a step at once, and then whenever the bell rings or the time is over
// that the step before gave, until ctx ends.
func (b Trigger) Run(ctx context.Context, step func() (next time.Duration)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b:
		case <-timer.C:
		}
		timer.Reset(step())
	}
}
