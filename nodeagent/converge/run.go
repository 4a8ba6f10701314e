package converge

import (
	"context"
	"math/rand/v2"
	"time"
)

// Source returns the desired state and its digest. If ok is false there is no valid desired
// state: the engine continues with the last valid one, and does nothing before the first.
type Source[D any] func(ctx context.Context) (desired D, digest string, ok bool)

// Run runs a round for each token of trigger and Drift, after failures with growing pauses, and
// once every resync period. Channels have size one, so that many events become one token.
// Urgent passes run first, even during a full pass. Run returns when ctx is done.
func (e *Engine[D]) Run(ctx context.Context, source Source[D], trigger <-chan struct{}) {
	var last struct {
		desired D
		digest  string
		valid   bool
	}
	e.trigger = trigger
	for ctx.Err() == nil {
		// The source is called next: its state includes the causes of all tokens so far.
		drain(e.trigger)
		drain(e.Drift)
		e.schedule.startRound()
		if desired, digest, ok := source(ctx); ok {
			last.desired, last.digest, last.valid = desired, digest, true
		}
		var report Report
		if last.valid {
			report = e.Once(ctx, last.desired, last.digest)
			if report.Interrupted {
				e.interruptedRounds++
				continue
			}
			e.interruptedRounds = 0
			if e.OnReport != nil {
				e.OnReport(report)
			}
		}
		e.schedule.finishRound(time.Now(), report, e.period())
		e.wait(ctx)
	}
}

// wait returns when a round is due, or ctx is done. It runs urgent passes in the meantime.
func (e *Engine[D]) wait(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		why, at := e.schedule.next(now)
		if at.After(now) {
			timer.Reset(at.Sub(now))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			case <-e.urgentTrigger():
				e.schedule.request(urgentToken)
			case <-e.trigger:
				e.schedule.request(triggerToken)
			case <-e.Drift:
				e.schedule.request(driftToken)
			}
			continue
		}
		if why != urgentToken {
			return
		}
		e.runUrgentPass(ctx, map[string]int{}, true)
	}
}

// drain removes the token from a channel of size one, if it has one.
func drain(tokens <-chan struct{}) {
	select {
	case <-tokens:
	default:
	}
}

// period returns the time between rounds, up to 10 % shorter or longer. So the nodes of a
// cluster do not act at the same time.
func (e *Engine[D]) period() time.Duration {
	period := e.Resync
	if period == 0 {
		period = Resync
	}
	return time.Duration(float64(period) * (0.9 + 0.2*rand.Float64()))
}
