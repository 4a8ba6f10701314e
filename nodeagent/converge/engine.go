package converge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Resync is how often the engine looks without being asked to.
const Resync = 30 * time.Second

const mostPasses = 3

// Engine brings what is to what D says. Only one goroutine may use it at a time.
type Engine[D any] struct {
	Stages []Stage[D] // in the order of creation
	Log    *slog.Logger
	// Decommission reports whether d says that everything of ours is to go. Nil
	// means never.
	Decommission func(d D) bool
	// OnReport gets the report of each round of Run, in Run's goroutine; nil = nobody.
	OnReport func(Report)
	// Resync overrides the period between rounds of Run; 0 = Resync.
	Resync time.Duration
	// Drift has a token when somebody, perhaps this engine, changed what is; nil =
	// nobody tells. It is as a trigger of Run, but for the time after an urgent pass.
	Drift <-chan struct{}
	// Urgent lets Run write some stages before all others; nil = there are none.
	Urgent *UrgentConfig[D]

	clean   string             // digest of the last round that left nothing to do; empty = none
	waiting map[string]waiting // blocked changes, by kind and key
	carried []Change           // made by urgent passes, for the next report
	glances int                // passes in a row that were interrupted
	ended   bool               // one came to its end
	moved   bool               // the round under way made way, and what it wants of urgent stages is older
	undone  Report             // what the latest urgent pass left
	owed    time.Time          // when the whole pass is due that urgent ones ask for; zero = none did
	trigger <-chan struct{}    // of Run; nil = there is none
}

// Once converges: one pass over all stages, and up to two more when a pass both
// made progress and left something undone. Digest must change whenever desired
// does; a change under the same digest counts as drift. Empty means unknown.
func (e *Engine[D]) Once(ctx context.Context, desired D, digest string) Report {
	began := time.Now()
	report := Report{Digest: digest, At: began, Drift: map[string]int{}}
	looks := digest != "" && digest == e.clean
	defer func() { e.moved = false }()
	for report.Passes < mostPasses && !report.Interrupted {
		before := len(report.Changed)
		report.Passes++
		report.Failed, report.Blocked, report.Fights, report.Deferred, report.Next = nil, nil, nil, nil, time.Time{}
		e.pass(ctx, &pass[D]{desired: desired, digest: digest, looks: looks, report: &report})
		stuck := len(report.Failed) + len(report.Blocked)
		if stuck == 0 || len(report.Changed) == before || ctx.Err() != nil {
			break
		}
	}
	if report.Interrupted {
		return report
	}
	e.ended = true
	if looks {
		for _, c := range report.Changed {
			report.Drift[c.Kind]++
		}
	}
	if e.clean = ""; report.Clean() && !e.moved {
		e.clean = digest
	}
	report.Changed = append(e.carried, report.Changed...)
	e.carried = nil
	report.Took = time.Since(began)
	e.log(ctx, report)
	return report
}

// Plan gives the changes that Once would make, in its order, and makes none.
// The error tells of stages that could not be read, and of a state that would be
// refused; the changes of the other stages are given all the same.
func (e *Engine[D]) Plan(ctx context.Context, desired D) ([]Change, error) {
	var report Report
	p := &pass[D]{desired: desired, report: &report, planOnly: true}
	e.pass(ctx, p)
	changes := p.planned
	for _, deletes := range slices.Backward(p.removed) {
		changes = append(changes, deletes...)
	}
	return changes, report.Err()
}

func (e *Engine[D]) pass(ctx context.Context, p *pass[D]) {
	p.now, p.objects, p.deletes = time.Now(), map[string]int{}, map[string]int{}
	p.makeWay = func() { e.makeWay(ctx, p) }
	defer func() {
		if e.moved {
			p.report.Failed = append(p.report.Failed, e.undone.Failed...)
			p.report.Blocked = append(p.report.Blocked, e.undone.Blocked...)
		}
	}()
	for _, s := range e.Stages {
		if err := ctx.Err(); err != nil {
			p.fail(s.Name(), "", err)
			return
		}
		if e.anew(p) {
			p.report.Interrupted = true
			return
		}
		p.makeWay()
		// What p wants of an urgent stage is older then. It has its turn all the same, as what
		// blocked it may have been made meanwhile.
		if !(e.moved && s.urgent() && e.hurry(ctx, p.objects)) {
			s.forward(ctx, p)
		}
	}
	p.report.Objects = p.objects
	if e.refuses(p) {
		p.fail("desired state", "", ErrMassDelete)
		return
	}
	if p.planOnly {
		return
	}
	for _, s := range slices.Backward(e.Stages) {
		p.makeWay()
		if !(e.moved && s.urgent()) { // the whole pass that follows deletes there
			s.backward(ctx, p)
		}
	}
}

// refuses is the guard against a state that asks for nothing although there is
// something: an input that was lost on the way looks just like that.
func (e *Engine[D]) refuses(p *pass[D]) bool {
	deletes, wanted := 0, 0
	for _, n := range p.deletes {
		deletes += n
	}
	for _, s := range e.Stages {
		wanted += s.Wanted(p.desired)
	}
	if deletes == 0 || wanted > 0 {
		return false
	}
	return e.Decommission == nil || !e.Decommission(p.desired)
}

func (p *pass[D]) plan(changes, deletes []Change) {
	p.planned = append(p.planned, changes...)
	p.removed = append(p.removed, deletes)
}

func (e *Engine[D]) log(ctx context.Context, r Report) {
	if e.Log == nil {
		return
	}
	drift := len(r.Drift) > 0
	for _, c := range r.Changed {
		level := slog.LevelDebug
		if drift {
			level = slog.LevelWarn
		}
		e.Log.Log(ctx, level, map[bool]string{true: "drift repaired", false: "changed"}[drift],
			"kind", c.Kind, "op", string(c.Op), "key", c.Key, "origin", c.Origin, "fields", fieldsOf(c))
	}
	for _, p := range r.Failed {
		e.Log.ErrorContext(ctx, "change failed", "kind", p.Kind, "key", p.Key, "err", p.Err)
	}
	for _, p := range r.Fights {
		e.Log.ErrorContext(ctx, "change is undone each time", "kind", p.Kind, "key", p.Key)
	}
	e.logBlocked(ctx, r)
	if len(r.Changed) > 0 {
		e.Log.InfoContext(ctx, "converged", "digest", r.Digest, "changed", len(r.Changed), "blocked", len(r.Blocked),
			"failed", len(r.Failed), "passes", r.Passes, "took", r.Took)
	}
}

// blockedLong is how long a change may wait before somebody is told.
const blockedLong = time.Minute

// waiting is a blocked change.
type waiting struct {
	since time.Time
	told  bool
}

func (e *Engine[D]) logBlocked(ctx context.Context, r Report) {
	still := make(map[string]waiting, len(r.Blocked))
	for _, p := range r.Blocked {
		id := p.Kind + " " + p.Key
		w, known := e.waiting[id]
		if !known {
			w.since = r.At
		}
		var on ErrBlocked
		errors.As(p.Err, &on)
		level := slog.LevelDebug
		if !w.told && r.At.Sub(w.since) > blockedLong {
			level, w.told = slog.LevelWarn, true
		}
		e.Log.Log(ctx, level, "change waits", "kind", p.Kind, "key", p.Key, "on", on.On, "since", w.since)
		still[id] = w
	}
	e.waiting = still
}

func fieldsOf(c Change) slog.Value {
	attrs := make([]slog.Attr, len(c.Deltas))
	for i, d := range c.Deltas {
		attrs[i] = slog.String(d.Name, orNone(d.Have)+" -> "+orNone(d.Want))
	}
	return slog.GroupValue(attrs...)
}

func showAll[D any, S diff.Spec](s *stage[D, S], changes []diff.Change[S]) []Change {
	shown := make([]Change, len(changes))
	for i, c := range changes {
		shown[i] = s.show(c)
	}
	return shown
}
