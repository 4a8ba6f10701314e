package converge

import (
	"context"
	"slices"
	"time"
)

const (
	// urgentRest is the least time between two urgent passes.
	urgentRest = 2 * time.Millisecond
	// urgentPause is how long a whole pass waits after the first urgent one. It needs the
	// CPU that the traffic needs which was just moved, and in most cases more urgent
	// passes follow: the links of a gateway that died fall one after the other.
	urgentPause = 150 * time.Millisecond
	// mostInterrupts bounds the passes in a row that end early for an urgent one.
	mostInterrupts = 8
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
// the urgent source asks for nothing of it.
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

// interrupted reports whether a pass should make way.
func (e *Engine[D]) interrupted(p *pass[D]) bool {
	return !p.planOnly && e.Hurry != nil && e.interrupts < mostInterrupts && len(e.Hurry.Trigger) > 0
}

// hurry makes one urgent pass. Its changes count in the report of the whole pass
// that follows. It reports whether it made any.
func (e *Engine[D]) hurry(ctx context.Context) bool {
	desired, digest, ok := e.Hurry.Source(ctx)
	if !ok {
		return false
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
		if s.urgent() && s.Wanted(desired) > 0 {
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
	return len(report.Changed) > 0
}

// idle rests, then waits for a token or the end of the period. Urgent passes are
// made meanwhile, and put the end of the rest off. It is false when ctx ended.
func (e *Engine[D]) idle(ctx context.Context, rest, period time.Duration, trigger <-chan struct{}) bool {
	until := time.Now().Add(rest)
	rested, over := time.NewTimer(rest), time.NewTimer(max(rest, period))
	defer rested.Stop()
	defer over.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	var tokens, urgent <-chan struct{}
	asked := false
	ask := func() {
		if asked {
			return
		}
		asked, tokens = true, nil
		rested.Reset(max(time.Until(until), urgentPause))
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-quiet.C:
			urgent = e.urgentTrigger()
		case <-urgent:
			e.hurry(ctx)
			urgent = nil
			quiet.Reset(urgentRest)
			ask()
		case <-rested.C:
			if asked {
				select {
				case <-trigger: // for the same whole pass
				default:
				}
				return true
			}
			tokens = trigger
		case <-tokens:
			if len(urgent) == 0 {
				return true
			}
			ask()
		case <-over.C:
			return true
		}
	}
}
