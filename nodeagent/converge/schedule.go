package converge

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
)

// reason is the reason why Run runs a pass. The lowest value goes first if several are due.
type reason int

const (
	urgentToken  reason = iota // an urgent stage may have to change: urgent pass
	triggerToken               // the desired state may have changed
	driftToken                 // observed objects changed
	followUp                   // a full pass has to follow an urgent one
	resync                     // the period, a retry, or a deferred change

	reasons // number of reasons
)

const (
	// minUrgentInterval is the minimum time between two urgent passes.
	minUrgentInterval = 2 * time.Millisecond
	// fullPassDelay is the delay of the full pass after an urgent one. The moved traffic needs
	// its CPU time. Further urgent passes often come first, because the links of a failed
	// gateway fail one after the other.
	fullPassDelay = 150 * time.Millisecond
	// driftSettleTime is the delay of drift events after a clean pass that changed something:
	// its own changes caused most of them.
	driftSettleTime = 300 * time.Millisecond
	// minBackoff is the pause after a failed pass. It doubles with each further failure.
	minBackoff = time.Second
	// Full passes use at most half of the time once they have used freeBudget. A single trigger
	// does not wait after the previous pass.
	minRest    = 10 * time.Millisecond
	maxRest    = 250 * time.Millisecond
	freeBudget = 250 * time.Millisecond
)

// schedule decides when the next pass runs, and why. It reads no clock and no channel. The
// resync time always counts; all other reasons have to be requested.
type schedule struct {
	requested   [reasons]bool
	restEnd     time.Time // no full pass before, except resync
	driftEnd    time.Time // no full pass for drift before
	urgentEnd   time.Time // no urgent pass before
	fullPassDue time.Time // of followUp
	resyncAt    time.Time
	backoff     time.Duration // after the next failure; 0 = minBackoff
	load        dutyCycle
}

func (s *schedule) request(r reason) { s.requested[r] = true }

// next returns the reason that is due first, and its time: now if it is already due.
func (s *schedule) next(now time.Time) (first reason, at time.Time) {
	fullPass := timerqueue.Later(s.restEnd, s.fullPassDue)
	earliest := [reasons]time.Time{
		urgentToken: s.urgentEnd, triggerToken: s.restEnd,
		driftToken: timerqueue.Later(fullPass, s.driftEnd), followUp: fullPass, resync: s.resyncAt,
	}
	first, at = resync, timerqueue.Later(now, s.resyncAt)
	for r := resync - 1; r >= 0; r-- {
		if t := timerqueue.Later(now, earliest[r]); s.requested[r] && !t.After(at) {
			first, at = r, t
		}
	}
	return first, at
}

// startFull records that a full pass starts. It serves all requests but the urgent one.
func (s *schedule) startFull() {
	s.requested = [reasons]bool{urgentToken: s.requested[urgentToken]}
	s.fullPassDue = time.Time{}
}

// finishFull records the result of a full pass. period is the time to the next full pass if nothing
// requests it earlier.
func (s *schedule) finishFull(now time.Time, r Report, period time.Duration) {
	rest, next := s.load.rest(now, r.Took), period
	if len(r.Failed) == 0 || len(r.Changed) > 0 || s.backoff == 0 {
		s.backoff = minBackoff
	}
	if len(r.Failed) > 0 {
		rest = maxRest // The failed attempt may itself have caused the next event.
		next = min(s.backoff, period)
		s.backoff = min(2*s.backoff, period)
	}
	if !r.Next.IsZero() {
		next = min(next, max(r.Next.Sub(now), minRest))
	}
	s.restEnd, s.driftEnd, s.resyncAt = now.Add(rest), now, now.Add(max(rest, next))
	if r.Clean() && len(r.Changed) > 0 {
		s.driftEnd = now.Add(driftSettleTime)
	}
}

// startUrgent records that an urgent pass starts.
func (s *schedule) startUrgent() { s.requested[urgentToken] = false }

// followUrgent requests the full pass that follows an urgent pass whose source has a state. now is
// the start of the urgent pass.
func (s *schedule) followUrgent(now time.Time) {
	if !s.requested[followUp] {
		s.request(followUp)
		s.fullPassDue = now.Add(fullPassDelay)
	}
}

// finishUrgent records that an urgent pass is done.
func (s *schedule) finishUrgent(now time.Time) { s.urgentEnd = now.Add(minUrgentInterval) }

// dutyCycle limits the share of time that full passes use. used grows by the time of each pass and
// shrinks while the engine waits.
type dutyCycle struct {
	used    time.Duration
	lastEnd time.Time
}

// rest records a pass of a duration that has just ended. It returns the following rest time.
func (d *dutyCycle) rest(now time.Time, took time.Duration) time.Duration {
	idle := max(now.Sub(d.lastEnd)-took, 0)
	d.used = min(max(d.used-idle, 0)+took, freeBudget+maxRest)
	d.lastEnd = now
	return max(min(d.used-freeBudget, took), minRest)
}
