package converge

import (
	"context"
	"errors"
	"slices"
	"time"

	"hawser.dev/hawser/internal/diff"
)

// Stage is one kind together with its part of the desired state D.
type Stage[D any] interface {
	// Name returns the name of the kind.
	Name() string
	// DesiredCount returns the number of objects in d.
	DesiredCount(d D) int

	forward(ctx context.Context, p *pass[D])
	backward(ctx context.Context, p *pass[D])
	markUrgent()
	isUrgent() bool
}

// NewStage returns a stage of a kind. desired returns the objects of the kind in the desired state.
// origin returns the topology path that caused an object, for plan and log; may be nil.
func NewStage[D any, S diff.Spec](kind Kind[S], desired func(D) []S, origin func(S) string) Stage[D] {
	if origin == nil {
		origin = func(S) string { return "" }
	}
	return &stage[D, S]{kind: kind, desired: desired, origin: origin, fights: map[string]*fight{}, deferrals: map[string]*deferral{}}
}

type stage[D any, S diff.Spec] struct {
	kind      Kind[S]
	desired   func(D) []S
	origin    func(S) string
	urgent    bool
	written   []S                  // existing objects of an urgent stage after the last write; nil = unknown
	fights    map[string]*fight    // of keys that changed in the pass before
	deferrals map[string]*deferral // of a Deferrer
	cache     observedCache[S]
}

func (s *stage[D, S]) Name() string { return s.kind.Name() }

func (s *stage[D, S]) DesiredCount(d D) int { return len(s.desired(d)) }

// forward compares, and creates and updates.
func (s *stage[D, S]) forward(ctx context.Context, p *pass[D]) {
	changes, objects, err := s.compare(ctx, p)
	if err != nil {
		p.fail(s.Name(), "", err)
		return
	}
	writes, deletes := splitDeletes(changes)
	p.objects[s.Name()] = objects
	p.deletes[s.Name()] = len(deletes)
	if p.planOnly {
		p.planned = append(p.planned, s.showAll(writes)...)
		p.removed = append(p.removed, s.showAll(deletes))
		return
	}
	if !p.trustWritten { // without reading, a change that another program reverts looks settled
		s.forgetSettledFights(changes)
	}
	s.trackDeferrals(changes, p.now)
	s.rememberWritten(p, deletes, s.apply(ctx, p, writes))
}

// backward deletes. It compares again, because earlier deletes may have removed objects of this
// stage too. A stage without deletes in the forward direction is not read a second time.
func (s *stage[D, S]) backward(ctx context.Context, p *pass[D]) {
	if p.deletes[s.Name()] == 0 {
		return
	}
	changes, _, err := s.compare(ctx, p)
	if err != nil {
		p.fail(s.Name(), "", err)
		return
	}
	_, deletes := splitDeletes(changes)
	s.rememberWritten(p, nil, s.apply(ctx, p, deletes))
}

func splitDeletes[S diff.Spec](changes []diff.Change[S]) (writes, deletes []diff.Change[S]) {
	isDelete := func(c diff.Change[S]) bool { return c.Op == diff.Delete }
	if !slices.ContainsFunc(changes, isDelete) {
		return changes, nil // the usual case, without a copy of thousands
	}
	for _, c := range changes {
		if isDelete(c) {
			deletes = append(deletes, c)
		} else {
			writes = append(writes, c)
		}
	}
	return writes, deletes
}

// apply makes changes, in batches if the kind is a Batcher. The objects are read again in the
// next full pass. It reports whether all needed changes were made without interruption.
func (s *stage[D, S]) apply(ctx context.Context, p *pass[D], needed []diff.Change[S]) (complete bool) {
	changes := s.skipDeferred(p, s.skipFights(p, needed))
	if len(changes) == 0 {
		return len(needed) == 0
	}
	s.cache, s.written = observedCache[S]{}, nil
	undone := len(p.report.Failed) + len(p.report.Blocked)
	batches := [][]diff.Change[S]{changes}
	if k, ok := s.kind.(Batcher[S]); ok {
		batches = k.Batches(changes)
	}
	for i, batch := range batches {
		if i > 0 {
			p.preempt()
		}
		s.write(ctx, p, batch)
	}
	return len(changes) == len(needed) && len(batches) == 1 && undone == len(p.report.Failed)+len(p.report.Blocked)
}

func (s *stage[D, S]) write(ctx context.Context, p *pass[D], changes []diff.Change[S]) {
	byKey := map[string]error{}
	rest := splitErrors(s.kind.Apply(ctx, changes), byKey)
	p.report.Changed = slices.Grow(p.report.Changed, len(changes))
	for _, c := range changes {
		err := byKey[c.Key]
		switch {
		case err == nil && rest == nil:
			s.recordFight(c)
			s.recordWrite(c, p.now)
			p.report.Changed = append(p.report.Changed, s.show(c))
		case err != nil:
			p.fail(s.Name(), c.Key, err)
		}
	}
	if rest != nil {
		p.fail(s.Name(), "", rest)
	}
}

// show returns the change as reports show it, without secrets.
func (s *stage[D, S]) show(c diff.Change[S]) Change {
	shown := Change{Kind: s.Name(), Op: c.Op, Key: c.Key, Deltas: c.Deltas()}
	if c.Op != diff.Delete {
		shown.Origin = s.origin(c.Want)
	}
	return shown
}

func (s *stage[D, S]) showAll(changes []diff.Change[S]) []Change {
	shown := make([]Change, len(changes))
	for i, c := range changes {
		shown[i] = s.show(c)
	}
	return shown
}

// pass is one walk over all stages.
type pass[D any] struct {
	desired    D
	digest     string
	planOnly   bool
	verifyOnly bool // the desired state has not changed since the last clean round
	// trustWritten compares urgent stages with the objects that this engine wrote, without
	// reading them. The round that follows reads them.
	trustWritten bool
	now          time.Time
	preempt      func() // runs a pending urgent pass, between stages and batches

	report  *Report
	objects map[string]int // number by kind
	deletes map[string]int // number by kind
	planned []Change       // creates and updates, in order
	removed [][]Change     // deletes by stage, in the order of the stages
}

func (p *pass[D]) fail(kind, key string, err error) {
	problem := Problem{Kind: kind, Key: key, Err: err}
	var blocked ErrBlocked
	if errors.As(err, &blocked) {
		p.report.Blocked = append(p.report.Blocked, problem)
		return
	}
	p.report.Failed = append(p.report.Failed, problem)
}
