package converge

import (
	"time"

	"hawser.dev/hawser/internal/timerqueue"
)

// reason is the reason why Run runs a round or an urgent pass. The lowest value goes first if
// several are due.
type reason int

const (
	urgentToken  reason = iota // an urgent stage may have to change: urgent pass
	triggerToken               // the desired state may have changed
	driftToken                 // observed objects changed
	followUp                   // a round has to follow an urgent pass
	resync                     // the period, a retry, or a deferred change

	reasons // number of reasons
)

const (
	// minUrgentInterval is the minimum time between two urgent passes.
	minUrgentInterval = 2 * time.Millisecond
	// roundDelay is the delay of the round after an urgent pass. The moved traffic needs
	// its CPU time. Further urgent passes often come first, because the links of a failed
	// gateway fail one after the other.
	roundDelay = 150 * time.Millisecond
	// driftSettleTime is the delay of drift events after a clean round that changed something:
	// its own changes caused most of them.
	driftSettleTime = 300 * time.Millisecond
	// minBackoff is the pause after a failed round. It doubles with each further failure.
	minBackoff = time.Second
	// Rounds use at most half of the time once they have used freeBudget. A single trigger does
	// not wait after the previous round.
	minRest    = 10 * time.Millisecond
	maxRest    = 250 * time.Millisecond
	freeBudget = 250 * time.Millisecond
)

// schedule decides when the next round or urgent pass runs, and why. It reads no clock and no
// channel. The resync time always counts; all other reasons have to be requested.
type schedule struct {
	requested [reasons]bool
	restEnd   time.Time // no round before, except resync
	driftEnd  time.Time // no round for drift before
	urgentEnd time.Time // no urgent pass before
	roundDue  time.Time // of followUp
	resyncAt  time.Time
	backoff   time.Duration // after the next failure; 0 = minBackoff
	load      dutyCycle
}

func (s *schedule) request(r reason) { s.requested[r] = true }

// next returns the reason that is due first, and its time: now if it is already due.
func (s *schedule) next(now time.Time) (first reason, at time.Time) {
	roundAt := timerqueue.Later(s.restEnd, s.roundDue)
	earliest := [reasons]time.Time{
		urgentToken: s.urgentEnd, triggerToken: s.restEnd,
		driftToken: timerqueue.Later(roundAt, s.driftEnd), followUp: roundAt, resync: s.resyncAt,
	}
	first, at = resync, timerqueue.Later(now, s.resyncAt)
	for r := resync - 1; r >= 0; r-- {
		if t := timerqueue.Later(now, earliest[r]); s.requested[r] && !t.After(at) {
			first, at = r, t
		}
	}
	return first, at
}

// startRound records that a round starts. It serves all requests but the urgent one.
func (s *schedule) startRound() {
	s.requested = [reasons]bool{urgentToken: s.requested[urgentToken]}
	s.roundDue = time.Time{}
}

// finishRound records the result of a round. period is the time to the next round if nothing
// requests it earlier.
func (s *schedule) finishRound(now time.Time, r Report, period time.Duration) {
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

// followUrgent requests the round that follows an urgent pass whose source has a state. now is
// the start of the urgent pass.
func (s *schedule) followUrgent(now time.Time) {
	if !s.requested[followUp] {
		s.request(followUp)
		s.roundDue = now.Add(roundDelay)
	}
}

// finishUrgent records that an urgent pass is done.
func (s *schedule) finishUrgent(now time.Time) { s.urgentEnd = now.Add(minUrgentInterval) }

// dutyCycle limits the share of time that rounds use. used grows by the time of each round and
// shrinks while the engine waits.
type dutyCycle struct {
	used    time.Duration
	lastEnd time.Time
}

// rest records a round of a duration that has just ended. It returns the following rest time.
func (d *dutyCycle) rest(now time.Time, took time.Duration) time.Duration {
	idle := max(now.Sub(d.lastEnd)-took, 0)
	d.used = min(max(d.used-idle, 0)+took, freeBudget+maxRest)
	d.lastEnd = now
	return max(min(d.used-freeBudget, took), minRest)
}
