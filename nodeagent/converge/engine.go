package converge

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Resync is the time between rounds without a trigger.
const Resync = 30 * time.Second

const maxPasses = 3

// Engine converges the observed state to the desired state D. It is not safe for concurrent use.
type Engine[D any] struct {
	Stages []Stage[D] // in the order of creation
	Log    *slog.Logger
	// Decommission reports whether d requests the removal of all objects of Hawser. Nil means
	// never.
	Decommission func(d D) bool
	// OnReport receives the report of each round of Run, in Run's goroutine; may be nil.
	OnReport func(Report)
	// Resync overrides the time between rounds without a trigger; 0 = Resync.
	Resync time.Duration
	// Drift has a token if this engine or another writer changed an observed object; nil = no
	// events. It triggers a round of Run; after an urgent pass, the round that follows it.
	Drift <-chan struct{}
	// Urgent configures urgent passes of Run; nil = none.
	Urgent *UrgentConfig[D]

	schedule          schedule
	trigger           <-chan struct{}          // of Run; nil without it
	cleanDigest       string                   // of the desired state of the last clean round; empty = unknown
	blocked           map[string]blockedChange // by kind and key
	completedOnce     bool                     // a round reached its end
	interruptedRounds int                      // verify-only rounds in a row that stopped early
	preempted         bool                     // an urgent pass has newer state than this pass
	urgentResult      Report                   // of the latest urgent pass, with the changes of all urgent passes since the last round
}

// Once runs one round: one full pass, and up to two more if a pass made progress and also left failed
// or blocked changes. Digest must change whenever desired does: a change under the same digest
// counts as drift. An empty digest means unknown.
func (e *Engine[D]) Once(ctx context.Context, desired D, digest string) Report {
	start := time.Now()
	report := Report{Digest: digest, At: start, Drift: map[string]int{}}
	verifyOnly := digest != "" && digest == e.cleanDigest
	defer func() { e.preempted = false }()
	for report.Passes < maxPasses && !report.Interrupted {
		before := len(report.Changed)
		report.Passes++
		report.Failed, report.Blocked, report.Fights, report.Deferred, report.Next = nil, nil, nil, nil, time.Time{}
		e.fullPass(ctx, &pass[D]{desired: desired, digest: digest, verifyOnly: verifyOnly, report: &report})
		if e.preempted {
			report.Failed = append(report.Failed, e.urgentResult.Failed...)
			report.Blocked = append(report.Blocked, e.urgentResult.Blocked...)
		}
		undone := len(report.Failed) + len(report.Blocked)
		if undone == 0 || len(report.Changed) == before || ctx.Err() != nil {
			break
		}
	}
	if report.Interrupted {
		return report
	}
	e.completedOnce = true
	if verifyOnly {
		for _, c := range report.Changed {
			report.Drift[c.Kind]++
		}
	}
	if e.cleanDigest = ""; report.Clean() && !e.preempted {
		e.cleanDigest = digest
	}
	urgent := e.urgentResult.Changed
	e.urgentResult.Changed = nil
	report.Changed = append(urgent, report.Changed...)
	report.Took = time.Since(start)
	e.log(ctx, report, len(urgent))
	return report
}

// Plan returns the changes that Once would make, in its order, and makes none. The error
// lists stages that could not be read, and a desired state that Once would refuse; the
// changes of all other stages are still returned.
func (e *Engine[D]) Plan(ctx context.Context, desired D) ([]Change, error) {
	var report Report
	p := &pass[D]{desired: desired, report: &report, planOnly: true}
	e.fullPass(ctx, p)
	changes := p.planned
	for _, deletes := range slices.Backward(p.removed) {
		changes = append(changes, deletes...)
	}
	return changes, report.Err()
}

// fullPass walks over all stages: forward to create and update, backward to delete.
func (e *Engine[D]) fullPass(ctx context.Context, p *pass[D]) {
	p.now, p.objects, p.deletes = time.Now(), map[string]int{}, map[string]int{}
	p.preempt = func() { e.preempt(ctx, p) }
	for _, s := range e.Stages {
		if err := ctx.Err(); err != nil {
			p.fail(s.Name(), "", err)
			return
		}
		if e.shouldRestart(p) {
			p.report.Interrupted = true
			return
		}
		p.preempt()
		// After an urgent pass, p's desired state of an urgent stage is outdated. The stage
		// then uses the urgent source: this pass may have created the object that blocked
		// it. It reads the kernel, because this pass may also have replaced a device with
		// its routes.
		if !(e.preempted && s.isUrgent() && e.runUrgentPass(ctx, p.objects, false)) {
			s.forward(ctx, p)
		}
	}
	p.report.Objects = p.objects
	if e.isMassDelete(p) {
		p.fail("desired state", "", ErrMassDelete)
		return
	}
	if p.planOnly {
		return
	}
	for _, s := range slices.Backward(e.Stages) {
		p.preempt()
		if !(e.preempted && s.isUrgent()) { // the round that follows deletes there
			s.backward(ctx, p)
		}
	}
}

// isMassDelete reports whether the desired state is empty although objects exist. A lost input
// looks the same, so only a decommission permits it.
func (e *Engine[D]) isMassDelete(p *pass[D]) bool {
	deletes, desired := 0, 0
	for _, n := range p.deletes {
		deletes += n
	}
	for _, s := range e.Stages {
		desired += s.DesiredCount(p.desired)
	}
	if deletes == 0 || desired > 0 {
		return false
	}
	return e.Decommission == nil || !e.Decommission(p.desired)
}
