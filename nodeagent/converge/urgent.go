package converge

import (
	"context"
	"slices"
	"time"
)

// maxInterruptedRounds limits the consecutive verify-only rounds that stop early for a trigger.
const maxInterruptedRounds = 2

// UrgentConfig lets Run write a few stages before all others. A round follows each urgent pass,
// unless Source has no state.
type UrgentConfig[D any] struct {
	// Source returns the desired state of the urgent stages. It is called in the engine's
	// goroutine.
	Source Source[D]
	// Trigger is a channel of size one. During a full pass, the engine reads it before each
	// stage and before each batch of a Batcher.
	Trigger <-chan struct{}
	// Done is called in the engine's goroutine after each urgent pass; may be nil.
	Done func()
}

// MarkUrgent marks a stage that urgent passes write, and returns it. An urgent pass also
// deletes, unless its source has no object of the stage or no round completed yet: objects of
// the previous agent process have to be removed in the order of the stages.
func MarkUrgent[D any](s Stage[D]) Stage[D] {
	s.markUrgent()
	return s
}

func (s *stage[D, S]) markUrgent() { s.urgent = true }

func (s *stage[D, S]) isUrgent() bool { return s.urgent }

// urgentTrigger returns nil if no urgent passes are configured.
func (e *Engine[D]) urgentTrigger() <-chan struct{} {
	if e.Urgent == nil {
		return nil
	}
	return e.Urgent.Trigger
}

// shouldRestart reports whether a verify-only round should stop because a new trigger arrived.
// A round that already repaired something continues: its own writes caused the trigger.
func (e *Engine[D]) shouldRestart(p *pass[D]) bool {
	return p.verifyOnly && !p.planOnly && len(p.report.Changed) == 0 &&
		len(e.trigger) > 0 && e.interruptedRounds < maxInterruptedRounds
}

// preempt runs a pending urgent pass between two stages. It does nothing before the first round
// completed, because urgent stages depend on the objects of that round.
func (e *Engine[D]) preempt(ctx context.Context, p *pass[D]) {
	if p.planOnly || !e.completedOnce {
		return
	}
	select {
	case <-e.urgentTrigger():
		e.schedule.request(urgentToken)
	default:
	}
	if e.schedule.requested[urgentToken] && e.runUrgentPass(ctx, p.objects, true) {
		e.preempted = true
	}
}

// runUrgentPass runs one urgent pass, and stores the number of objects of its stages. It
// returns false if the urgent source has no state. Its changes appear in the report of the round
// that it preempts, or that follows. With trustWritten, stages whose objects are known from
// the last write do not read them.
func (e *Engine[D]) runUrgentPass(ctx context.Context, objects map[string]int, trustWritten bool) bool {
	start := time.Now()
	e.schedule.startUrgent()
	defer func() { e.schedule.finishUrgent(time.Now()) }()
	desired, digest, ok := e.Urgent.Source(ctx)
	if !ok {
		return false
	}
	e.schedule.followUrgent(start)
	report := Report{Digest: digest, At: start, Passes: 1}
	p := &pass[D]{
		desired: desired, trustWritten: trustWritten, report: &report, now: start, preempt: func() {}, objects: objects, deletes: map[string]int{},
	}
	for _, s := range e.Stages {
		if s.isUrgent() {
			s.forward(ctx, p)
		}
	}
	for _, s := range slices.Backward(e.Stages) {
		if s.isUrgent() && e.completedOnce && s.DesiredCount(desired) > 0 {
			s.backward(ctx, p)
		}
	}
	if e.Urgent.Done != nil {
		e.Urgent.Done()
	}
	report.Took = time.Since(start)
	if e.Log != nil && len(report.Changed)+len(report.Failed) > 0 {
		e.Log.InfoContext(ctx, "urgent pass done", "changed", len(report.Changed),
			"blocked", len(report.Blocked), "failed", len(report.Failed), "took", report.Took)
	}
	report.Changed = append(e.urgentResult.Changed, report.Changed...)
	e.urgentResult = report
	return true
}
