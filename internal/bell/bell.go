// Package bell wakes loops that otherwise sleep: something came, or it is time.
package bell

import (
	"context"
	"time"
)

// Bell is rung by many and heard by one. Rung again before it was heard, it says
// the same.
type Bell chan struct{}

// New makes a bell.
func New() Bell { return make(Bell, 1) }

// Ring never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Loop does a step at once, and then whenever the bell rings or the time is over
// that the step before gave, until ctx ends.
func (b Bell) Loop(ctx context.Context, step func() (next time.Duration)) {
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
