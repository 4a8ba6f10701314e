package converge

import (
	"context"
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diff"
)

// Equaler is an object of which there may be thousands: Same reports, without making texts,
// that key and fields of two are equal.
type Equaler[S any] interface {
	Equal(other S) bool
}

// known is what makes a stage read and compare less than everything: what was read last, and
// what was wanted when nothing was left to do. All of it counts as long as the kind's stamp stays.
type known[S diff.Spec] struct {
	stamp string // empty = nothing is known
	have  []S

	clean  bool // have is as digest says
	digest string
	want   []S // then; nil = not remembered
}

// observe reads what is, unless the kind's stamp says that it is what was read before.
func (s *stage[D, S]) observe(ctx context.Context) error {
	stamp := ""
	if stamper, ok := s.kind.(Versioned); ok {
		var err error
		// The stamp is taken before the objects: a change in between makes the
		// next stamp differ, so it is never missed.
		if stamp, err = stamper.Version(ctx); err != nil {
			return fmt.Errorf("stamp: %w", err)
		}
		if stamp != "" && stamp == s.stamp {
			return nil
		}
	}
	s.known = known[S]{}
	have, err := s.kind.Observe(ctx)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	s.stamp, s.have = stamp, have
	return nil
}

// compare gives all changes of this stage, and the number of objects that there are.
func (s *stage[D, S]) compare(ctx context.Context, p *pass[D]) (changes []diff.Change[S], objects int, err error) {
	if err := s.observe(ctx); err != nil {
		return nil, 0, err
	}
	if s.clean && p.digest != "" && p.digest == s.digest {
		return nil, len(s.have), nil
	}
	want := s.want(p.desired)
	w, h := s.different(want)
	if changes, err = diff.Compute(s.adopt(w, h), h); err != nil {
		return nil, 0, fmt.Errorf("compare: %w", err)
	}
	s.clean, s.digest, s.known.want = len(changes) == 0 && s.stamp != "", p.digest, nil
	if _, cheap := any(*new(S)).(Equaler[S]); s.clean && cheap {
		s.known.want = slices.Clone(want)
	}
	return changes, len(s.have), nil
}

// different gives the parts of what is wanted and of what is that may differ. Most of thousands
// of objects are wanted just as they were when nothing was left to do; what was wanted then
// stands for what is, unless the kernel fills in something.
func (s *stage[D, S]) different(want []S) (w, h []S) {
	if _, adopts := s.kind.(Normalizer[S]); adopts || !s.clean || s.known.want == nil {
		return want, s.have
	}
	w, h = unlike(want, s.known.want)
	were := make(map[string]bool, len(h))
	for _, x := range h {
		were[x.Key()] = true
	}
	for _, x := range w {
		if !were[x.Key()] {
			return want, s.have // it is new, or one of the others twice
		}
	}
	return w, h
}

// unlike leaves out of two lists what is the same at its place: counted from the front, from the
// end, and in between where both have as many.
func unlike[S any](a, b []S) (onlyA, onlyB []S) {
	same := func(x, y *S) bool {
		// A pointer, as an object that becomes an interface is copied.
		return any(x).(Equaler[S]).Equal(*y)
	}
	for len(a) > 0 && len(b) > 0 && same(&a[0], &b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && same(&a[len(a)-1], &b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) != len(b) {
		return a, b
	}
	for i := range a {
		if !same(&a[i], &b[i]) {
			onlyA, onlyB = append(onlyA, a[i]), append(onlyB, b[i])
		}
	}
	return onlyA, onlyB
}

// adopt gives want with what the kernel fills in.
func (s *stage[D, S]) adopt(want, have []S) []S {
	adopter, ok := s.kind.(Normalizer[S])
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
			adopted[i] = adopter.Normalize(w, h)
		}
	}
	return adopted
}
