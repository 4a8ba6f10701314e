package converge

import (
	"context"
	"math/rand/v2"
	"time"
)

// Source gives the desired state and its digest. Not ok means that there is no
// valid one; the engine then goes on with the last that was, and does nothing at
// all before the first.
type Source[D any] func(ctx context.Context) (desired D, digest string, ok bool)

const (
	// backoffFirst is the pause after a pass that failed; it doubles with each further one.
	backoffFirst = time.Second
	// A stream of triggers may take half of the engine's time at most, once it has used
	// up restFree. What comes now and then does not wait for the pass before it.
	restShortest = 10 * time.Millisecond
	restLongest  = 250 * time.Millisecond
	restFree     = 250 * time.Millisecond
	// echoTime is how long events of Drift wait after a pass that changed something and left
	// nothing to do: they are about its own changes, and further ones often follow.
	echoTime = 300 * time.Millisecond
)

// labour is how much an engine worked lately: it grows with each pass by the time
// that this took, and fades while the engine rests.
type labour struct {
	sum time.Duration
	end time.Time // of the pass before
}

// rest counts a pass that just ended, and gives how long to rest behind it.
func (l *labour) rest(now time.Time, took time.Duration) time.Duration {
	idle := max(now.Sub(l.end)-took, 0)
	l.sum = min(max(l.sum-idle, 0)+took, restFree+restLongest)
	l.end = now
	return max(min(l.sum-restFree, took), restShortest)
}

// Run converges on each token of trigger (a channel of size one, so that many
// events are one token) and of Drift, after failures with growing pauses, and once every
// resync period; what is urgent it does first, whatever else is under way. It
// returns when ctx ends.
func (e *Engine[D]) Run(ctx context.Context, source Source[D], trigger <-chan struct{}) {
	var last struct {
		desired D
		digest  string
		valid   bool
	}
	e.trigger = trigger
	backoff, spent := backoffFirst, labour{}
	for ctx.Err() == nil {
		e.owed = time.Time{}
		if desired, digest, ok := source(ctx); ok {
			last.desired, last.digest, last.valid = desired, digest, true
		}
		next := e.period()
		rest, echo := restShortest, time.Duration(0)
		if last.valid {
			report := e.Once(ctx, last.desired, last.digest)
			if report.Interrupted {
				e.glances++
				select {
				case <-trigger: // the source is asked right now
				default:
				}
				continue
			}
			e.glances = 0
			if e.OnReport != nil {
				e.OnReport(report)
			}
			next, backoff = e.after(report, backoff)
			if !report.Next.IsZero() {
				next = min(next, max(time.Until(report.Next), restShortest))
			}
			rest = spent.rest(time.Now(), report.Took)
			if report.Clean() && len(report.Changed) > 0 {
				echo = echoTime
			}
			if len(report.Failed) > 0 {
				// The failed attempt may itself have caused the next event.
				rest = restLongest
			}
		}
		if !e.idle(ctx, rest, echo, next, trigger) {
			return
		}
	}
}

// after gives the time to the next look and the pause after the next failure.
func (e *Engine[D]) after(r Report, backoff time.Duration) (next, grown time.Duration) {
	if len(r.Failed) == 0 {
		return e.period(), backoffFirst
	}
	if len(r.Changed) > 0 {
		backoff = backoffFirst
	}
	period := e.period()
	return min(backoff, period), min(2*backoff, period)
}

// period gives the resync period, spread by a tenth to either side so that the
// nodes of a cluster do not move in step.
func (e *Engine[D]) period() time.Duration {
	period := e.Resync
	if period == 0 {
		period = Resync
	}
	return time.Duration(float64(period) * (0.9 + 0.2*rand.Float64()))
}
