package converge

import (
	"context"
	"slices"
	"time"

	"hawser.dev/hawser/internal/due"
)

const (
	// urgentRest is the least time between two urgent passes.
	urgentRest = 2 * time.Millisecond
	// urgentPause is how long a whole pass waits after the first urgent one, unless what
	// is wanted changes. It needs the CPU that the traffic needs which was just moved, and
	// in most cases more urgent passes follow: the links of a gateway that died fall one
	// after the other.
	urgentPause = 150 * time.Millisecond
	// mostGlances bounds the passes in a row that looked only, and ended early for a token.
	mostGlances = 2
)

// UrgentConfig is what must not wait for a whole pass: a few stages that are written on
// their own, first. A whole pass follows each time.
type UrgentConfig[D any] struct {
	// Source gives the part of the desired state that the urgent stages take. It
	// is called in the engine's goroutine.
	Source Source[D]
	// Trigger is a channel of size one. While a whole pass is under way, a token is heard
	// before its next stage, or the next piece of a Piecewise kind.
	Trigger <-chan struct{}
	// Done is called in the engine's goroutine after each urgent pass; may be nil.
	Done func()
}

// MarkUrgent marks a stage that an urgent pass writes. Its deletes are made too, unless
// the urgent source asks for nothing of it, or no whole pass came to its end yet: what is
// there may be of an agent before, and then has to go in the order of the stages.
func MarkUrgent[D any](s Stage[D]) Stage[D] {
	s.hasten()
	return s
}

func (s *stage[D, S]) hasten() { s.hasty = true }

func (s *stage[D, S]) urgent() bool { return s.hasty }

func (e *Engine[D]) urgentTrigger() <-chan struct{} {
	if e.Urgent == nil {
		return nil
	}
	return e.Urgent.Trigger
}

// anew reports whether a pass that only looks should end, as something may be wanted anew.
// One that found something to mend only looks no more, and caused tokens itself.
func (e *Engine[D]) anew(p *pass[D]) bool {
	return p.looks && !p.planOnly && len(p.report.Changed) == 0 && len(e.trigger) > 0 && e.glances < mostGlances
}

// makeWay makes an urgent pass in the midst of a whole one, if there is a token. Not before
// the first one ended: what is urgent stands on what that makes.
func (e *Engine[D]) makeWay(ctx context.Context, p *pass[D]) {
	if p.planOnly || !e.ended {
		return
	}
	select {
	case <-e.urgentTrigger():
		if e.hurry(ctx, p.objects) {
			e.moved = true
		}
	default:
	}
}

// hurry makes one urgent pass, unless its source has nothing, and counts what it sees. Its
// changes count in the report of the whole pass that is under way, or follows.
func (e *Engine[D]) hurry(ctx context.Context, objects map[string]int) bool {
	began := time.Now()
	if e.owed.IsZero() {
		e.owed = began.Add(urgentPause)
	}
	desired, digest, ok := e.Urgent.Source(ctx)
	if !ok {
		return false
	}
	report := Report{Digest: digest, At: began, Passes: 1}
	p := &pass[D]{desired: desired, report: &report, now: began, makeWay: func() {}, objects: objects, deletes: map[string]int{}}
	for _, s := range e.Stages {
		if s.urgent() {
			s.forward(ctx, p)
		}
	}
	for _, s := range slices.Backward(e.Stages) {
		if s.urgent() && e.ended && s.Wanted(desired) > 0 {
			s.backward(ctx, p)
		}
	}
	if e.Urgent.Done != nil {
		e.Urgent.Done()
	}
	report.Took = time.Since(began)
	e.undone = Report{Failed: report.Failed, Blocked: report.Blocked}
	e.carried = append(e.carried, report.Changed...)
	if e.Log != nil && len(report.Changed)+len(report.Failed) > 0 {
		e.Log.InfoContext(ctx, "converged first what is urgent", "changed", len(report.Changed),
			"blocked", len(report.Blocked), "failed", len(report.Failed), "took", report.Took)
	}
	return true
}

// idle rests, then waits for a token or the end of the period. Urgent passes are
// made meanwhile; the whole pass that each asks for, and what drifts, wait a moment
// longer, and what drifts at least for echo. It is false when ctx ended.
func (e *Engine[D]) idle(ctx context.Context, rest, echo, period time.Duration, trigger <-chan struct{}) bool {
	begun := time.Now()
	free, end, quiet := begun.Add(rest), begun.Add(max(rest, period)), begun
	silent := begun.Add(max(rest, echo))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		calm, next := due.Later(free, e.owed), end
		if !e.owed.IsZero() {
			next = due.Earlier(end, calm)
		}
		if !now.Before(next) {
			e.heard(trigger)
			return true
		}
		from := func(at time.Time, tokens <-chan struct{}) <-chan struct{} {
			if !now.Before(at) {
				return tokens
			}
			if at.Before(next) {
				next = at
			}
			return nil
		}
		tokens, drift, urgent := from(free, trigger), from(due.Later(calm, silent), e.Drift), from(quiet, e.urgentTrigger())
		timer.Reset(next.Sub(now))
		select {
		case <-ctx.Done():
			return false
		case <-tokens:
			e.heard(trigger)
			return true
		case <-drift:
			e.heard(trigger)
			return true
		case <-urgent:
			e.hurry(ctx, map[string]int{})
			quiet = time.Now().Add(urgentRest)
		case <-timer.C:
		}
	}
}

// heard takes the tokens that have come: the pass that follows sees what they tell of.
func (e *Engine[D]) heard(trigger <-chan struct{}) {
	for _, tokens := range []<-chan struct{}{trigger, e.Drift} {
		select {
		case <-tokens:
		default:
		}
	}
}
