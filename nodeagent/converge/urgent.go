package converge

import (
	"context"
	"slices"
	"time"
)

const (
	// urgentRest is the least time between two urgent passes.
	urgentRest = 2 * time.Millisecond
	// urgentPause is how long a whole pass waits after the first urgent one, unless what
	// is wanted changes. It needs the CPU that the traffic needs which was just moved, and
	// in most cases more urgent passes follow: the links of a gateway that died fall one
	// after the other.
	urgentPause = 150 * time.Millisecond
	// mostInterrupts bounds the passes in a row that end early for an urgent one.
	mostInterrupts = 8
	// mostGlances bounds those that looked only, and made way for a token.
	mostGlances = 2
)

// Hurry is what must not wait for a whole pass: a few stages that are written on
// their own, first. A whole pass follows each time.
type Hurry[D any] struct {
	// Source gives the part of the desired state that the urgent stages take. It
	// is called in the engine's goroutine.
	Source Source[D]
	// Trigger is a channel of size one. A token ends a pass that is under way
	// before its next stage.
	Trigger <-chan struct{}
	// Done is called in the engine's goroutine after each urgent pass; may be nil.
	Done func()
}

// Urgent marks a stage that an urgent pass writes. Its deletes are made too, unless
// the urgent source asks for nothing of it, or no whole pass came to its end yet: what is
// there may be of an agent before, and then has to go in the order of the stages.
func Urgent[D any](s Stage[D]) Stage[D] {
	s.hasten()
	return s
}

func (s *stage[D, S]) hasten() { s.hasty = true }

func (s *stage[D, S]) urgent() bool { return s.hasty }

func (e *Engine[D]) urgentTrigger() <-chan struct{} {
	if e.Hurry == nil {
		return nil
	}
	return e.Hurry.Trigger
}

// interrupted reports whether a pass should make way: for what is urgent, or, when it
// only looks, for what may be wanted anew.
func (e *Engine[D]) interrupted(p *pass[D]) bool {
	switch {
	case p.planOnly:
		return false
	case e.Hurry != nil && len(e.Hurry.Trigger) > 0:
		return e.interrupts < mostInterrupts
	}
	// One that found something to mend only looks no more, and caused tokens itself.
	return p.looks && len(p.report.Changed) == 0 && len(e.trigger) > 0 && e.interrupts < mostGlances
}

// hurry makes one urgent pass. Its changes count in the report of the whole pass
// that follows.
func (e *Engine[D]) hurry(ctx context.Context) {
	desired, digest, ok := e.Hurry.Source(ctx)
	if !ok {
		return
	}
	began := time.Now()
	report := Report{Digest: digest, At: began, Passes: 1}
	p := &pass[D]{desired: desired, report: &report, now: began, objects: map[string]int{}, deletes: map[string]int{}}
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
	if e.Hurry.Done != nil {
		e.Hurry.Done()
	}
	report.Took = time.Since(began)
	e.carried = append(e.carried, report.Changed...)
	if e.Log != nil && len(report.Changed)+len(report.Failed) > 0 {
		e.Log.InfoContext(ctx, "converged first what is urgent", "changed", len(report.Changed),
			"blocked", len(report.Blocked), "failed", len(report.Failed), "took", report.Took)
	}
}

// idle rests, then waits for a token or the end of the period. Urgent passes are
// made meanwhile; the whole pass that each asks for, and what drifts, wait a moment
// longer, and what drifts at least for echo. It is false when ctx ended.
func (e *Engine[D]) idle(ctx context.Context, rest, echo, period time.Duration, trigger <-chan struct{}) bool {
	begun := time.Now()
	free, end := begun.Add(rest), begun.Add(max(rest, period))
	calm, quiet, asked := free, begun, false
	silent := begun.Add(max(rest, echo))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if !now.Before(end) || asked && !now.Before(calm) {
			e.heard(trigger)
			return true
		}
		next := end
		from := func(at time.Time, tokens <-chan struct{}) <-chan struct{} {
			if !now.Before(at) {
				return tokens
			}
			if at.Before(next) {
				next = at
			}
			return nil
		}
		later := calm
		if silent.After(later) {
			later = silent
		}
		tokens, drift, urgent := from(free, trigger), from(later, e.Drift), from(quiet, e.urgentTrigger())
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
			e.hurry(ctx)
			now = time.Now()
			quiet = now.Add(urgentRest)
			if pause := now.Add(urgentPause); !asked && pause.After(calm) {
				calm = pause
			}
			asked = true
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
