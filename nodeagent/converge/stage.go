package converge

import (
	"context"
	"errors"
	"fmt"
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

	basis
	have        []S
	cleanStamp  string // stamp and digest with which nothing was left to do
	cleanDigest string
	cleanWant   []S // what was wanted then; nil = not remembered
}

// basis is what have rests on. The zero basis is none: have is not to be reused.
type basis struct {
	stamp   string
	written time.Time // since when have is what was written; zero = it was read
}

// holds reports whether have is still what is, when the stamp is this one now.
func (b basis) holds(stamp string, now time.Time) bool {
	return stamp != "" && stamp == b.stamp && (b.written.IsZero() || now.Sub(b.written) < believed)
}

func (s *stage[D, S]) Name() string { return s.kind.Name() }

func (s *stage[D, S]) Wanted(d D) int { return len(s.want(d)) }

// observe reads what is, or reuses what was read when the kind's stamp says
// that it is still so.
func (s *stage[D, S]) observe(ctx context.Context, now time.Time) ([]S, error) {
	stamp := ""
	if stamper, ok := s.kind.(Stamper); ok {
		var err error
		// The stamp is taken before the objects: a change in between makes the
		// next stamp differ, so it is never missed.
		if stamp, err = stamper.Stamp(ctx); err != nil {
			return nil, fmt.Errorf("stamp: %w", err)
		}
		if s.holds(stamp, now) {
			return s.have, nil
		}
	}
	s.basis = basis{}
	have, err := s.kind.Observe(ctx)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	s.stamp, s.have = stamp, have
	return have, nil
}

// compare gives all changes of this stage and what exists.
func (s *stage[D, S]) compare(ctx context.Context, p *pass[D]) ([]diff.Change[S], []S, error) {
	have, err := s.observe(ctx, p.now)
	if err != nil {
		return nil, nil, err
	}
	if s.stamp != "" && p.digest != "" && s.stamp == s.cleanStamp && p.digest == s.cleanDigest {
		return nil, have, nil
	}
	want := s.want(p.desired)
	changes, err := s.difference(want, have)
	if err != nil {
		return nil, nil, fmt.Errorf("compare: %w", err)
	}
	s.cleanStamp, s.cleanDigest, s.cleanWant = "", "", nil
	if len(changes) == 0 {
		s.cleanStamp, s.cleanDigest = s.stamp, p.digest
		s.remember(want)
	}
	return changes, have, nil
}

func (s *stage[D, S]) adopt(want, have []S) []S {
	adopter, ok := s.kind.(Adopter[S])
	if !ok || len(have) == 0 {
		return want
	}
	byKey := make(map[string]S, len(have))
	for _, h := range have {
		byKey[h.Key()] = h
	}
	adopted := make([]S, len(want))
	for i, w := range want {
		adopted[i] = w
		if h, exists := byKey[w.Key()]; exists {
			adopted[i] = adopter.Adopt(w, h)
		}
	}
	return adopted
}

func (s *stage[D, S]) forward(ctx context.Context, p *pass[D]) {
	changes, have, err := s.compare(ctx, p)
	if err != nil {
		p.fail(s.Name(), "", err)
		return
	}
	write, remove := parted(changes)
	p.objects[s.Name()] = len(have)
	p.deletes[s.Name()] = len(remove)
	if p.planOnly {
		p.plan(showAll(s, write), showAll(s, remove))
		return
	}
	s.settle(changes)
	s.await(changes, p.now)
	s.believe(p, s.apply(ctx, p, write), remove)
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

// believe takes what is wanted, and what is still to be deleted, for what is, after
// all other changes that were needed were made on a basis that holds.
func (s *stage[D, S]) believe(p *pass[D], b basis, deletes []diff.Change[S]) {
	if b.stamp == "" {
		return
	}
	s.basis = b
	if s.remember(s.want(p.desired)); s.cleanWant == nil {
		s.basis = basis{}
		return
	}
	s.cleanStamp, s.cleanDigest = s.stamp, p.digest
	for _, c := range deletes {
		s.cleanWant, s.cleanDigest = append(s.cleanWant, c.Have), ""
	}
	s.have = s.cleanWant
	if s.written.IsZero() {
		s.written = p.now
	}
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
	write, remove := parted(changes)
	if b := s.apply(ctx, p, remove); len(write) == 0 {
		s.believe(p, b, nil)
	}
}

// apply makes changes. It gives the basis on which all of them were made; none when
// what is does not follow from them.
func (s *stage[D, S]) apply(ctx context.Context, p *pass[D], needed []diff.Change[S]) basis {
	changes := s.inTurn(p, s.withoutFights(p, needed))
	if len(changes) == 0 {
		return basis{}
	}
	on := s.basis
	s.basis = basis{}
	byKey := map[string]error{}
	err := s.kind.Apply(ctx, changes)
	if _, follows := s.kind.(Follower); !follows || err != nil || len(changes) < len(needed) {
		on = basis{}
	}
	rest := split(err, byKey)
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
	return on
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
