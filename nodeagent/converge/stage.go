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
	// Name is the kind's.
	Name() string
	// Wanted is the number of objects that d asks for.
	Wanted(d D) int

	forward(ctx context.Context, p *pass[D])
	backward(ctx context.Context, p *pass[D])
	hasten()
	urgent() bool
}

// NewStage joins a kind with the function that takes its objects out of the
// desired state. Origin gives the topology path that caused an object, for plan
// and log; nil when there is none.
func NewStage[D any, S diff.Spec](kind Kind[S], want func(D) []S, origin func(S) string) Stage[D] {
	if origin == nil {
		origin = func(S) string { return "" }
	}
	return &stage[D, S]{kind: kind, want: want, origin: origin, fights: map[string]*fight{}, turns: map[string]*turn{}}
}

type stage[D any, S diff.Spec] struct {
	kind   Kind[S]
	want   func(D) []S
	origin func(S) string
	hasty  bool
	fights map[string]*fight // of keys that changed in the pass before
	turns  map[string]*turn  // of a Patient kind
	known[S]
}

func (s *stage[D, S]) Name() string { return s.kind.Name() }

func (s *stage[D, S]) Wanted(d D) int { return len(s.want(d)) }

func (s *stage[D, S]) forward(ctx context.Context, p *pass[D]) {
	changes, objects, err := s.compare(ctx, p)
	if err != nil {
		p.fail(s.Name(), "", err)
		return
	}
	write, remove := parted(changes)
	p.objects[s.Name()] = objects
	p.deletes[s.Name()] = len(remove)
	if p.planOnly {
		p.plan(showAll(s, write), showAll(s, remove))
		return
	}
	s.settle(changes)
	s.await(changes, p.now)
	s.apply(ctx, p, write)
}

// parted gives what is written and what is deleted.
func parted[S diff.Spec](changes []diff.Change[S]) (write, remove []diff.Change[S]) {
	deletes := func(c diff.Change[S]) bool { return c.Op == diff.Delete }
	if !slices.ContainsFunc(changes, deletes) {
		return changes, nil // all of thousands, in most cases
	}
	for _, c := range changes {
		if deletes(c) {
			remove = append(remove, c)
		} else {
			write = append(write, c)
		}
	}
	return write, remove
}

// backward deletes. What is to go is read again, as earlier deletes may have
// taken it along; a stage that had nothing to delete is not read a second time.
func (s *stage[D, S]) backward(ctx context.Context, p *pass[D]) {
	if p.deletes[s.Name()] == 0 {
		return
	}
	changes, _, err := s.compare(ctx, p)
	if err != nil {
		p.fail(s.Name(), "", err)
		return
	}
	_, remove := parted(changes)
	s.apply(ctx, p, remove)
}

// apply makes changes, in pieces where the kind has some. What is has to be read again then.
func (s *stage[D, S]) apply(ctx context.Context, p *pass[D], needed []diff.Change[S]) {
	changes := s.inTurn(p, s.withoutFights(p, needed))
	if len(changes) == 0 {
		return
	}
	s.known = known[S]{}
	pieces := [][]diff.Change[S]{changes}
	if k, is := s.kind.(Batcher[S]); is {
		pieces = k.Batches(changes)
	}
	for i, piece := range pieces {
		if i > 0 {
			p.makeWay()
		}
		s.write(ctx, p, piece)
	}
}

func (s *stage[D, S]) write(ctx context.Context, p *pass[D], changes []diff.Change[S]) {
	byKey := map[string]error{}
	rest := split(s.kind.Apply(ctx, changes), byKey)
	p.report.Changed = slices.Grow(p.report.Changed, len(changes))
	for _, c := range changes {
		err := byKey[c.Key]
		switch {
		case err == nil && rest == nil:
			s.made(c)
			s.took(c, p.now)
			p.changed(s.show(c))
		case err != nil:
			p.fail(s.Name(), c.Key, err)
		}
	}
	if rest != nil {
		p.fail(s.Name(), "", rest)
	}
}

func (s *stage[D, S]) show(c diff.Change[S]) Change {
	shown := Change{Kind: s.Name(), Op: c.Op, Key: c.Key, Deltas: c.Deltas()}
	if c.Op != diff.Delete {
		shown.Origin = s.origin(c.Want)
	}
	return shown
}

// pass is one walk over all stages.
type pass[D any] struct {
	desired  D
	digest   string
	planOnly bool
	looks    bool // nothing else is wanted than what was in force before
	now      time.Time
	makeWay  func() // does what is urgent, between stages and pieces

	report  *Report
	objects map[string]int
	deletes map[string]int // by stage
	planned []Change       // creates and updates, in order
	removed [][]Change     // deletes by stage, in order of the stages
}

func (p *pass[D]) changed(c Change) { p.report.Changed = append(p.report.Changed, c) }

func (p *pass[D]) fail(kind, key string, err error) {
	problem := Problem{Kind: kind, Key: key, Err: err}
	var blocked ErrBlocked
	if errors.As(err, &blocked) {
		p.report.Blocked = append(p.report.Blocked, problem)
		return
	}
	p.report.Failed = append(p.report.Failed, problem)
}
