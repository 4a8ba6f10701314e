package converge

import (
	"reflect"
	"slices"

	"hawser.dev/hawser/internal/diff"
)

// Limits of narrow: how far two lists may drift apart at one place, and how much
// may differ in all (one part in so many) before a full comparison is as good.
const (
	narrowWindow = 256
	narrowPart   = 4
)

// Samer is an object that == cannot compare, but that compares itself faster
// than by its fields. Two objects that are the same have equal keys and fields.
type Samer[S any] interface {
	Same(other S) bool
}

// remember keeps a desired state that was found to be in force. Only kinds with
// stamps and objects that are quick to compare can make use of it.
func (s *stage[D, S]) remember(want []S) {
	s.cleanWant = nil
	_, samer := any(*new(S)).(Samer[S])
	if s.stamp != "" && (samer || reflect.TypeFor[S]().Comparable()) {
		s.cleanWant = slices.Clone(want)
	}
}

// difference compares the whole, or only what differs from the state that is
// known to be in force, when nothing happened to the objects since.
func (s *stage[D, S]) difference(want, have []S) ([]diff.Change[S], error) {
	if s.stamp != "" && s.stamp == s.cleanStamp && s.cleanWant != nil {
		_, adopts := s.kind.(Adopter[S])
		if w, h, ok := narrow(want, s.cleanWant, have, !adopts); ok {
			return diff.Compute(s.adopt(w, h), h)
		}
	}
	return diff.Compute(s.adopt(want, have), have)
}

// narrow gives the parts of want and have that can differ, knowing that clean
// and have were equal. It is not ok when they would not be much smaller than the
// whole, or a key may occur twice. What clean has may stand for what have has where
// nothing but key and fields is asked for.
func narrow[S diff.Spec](want, clean, have []S, exact bool) (w, h []S, ok bool) {
	w, c, ok := unequal(want, clean)
	if !ok {
		return nil, nil, false
	}
	before, touched := make(map[string]bool, len(c)), make(map[string]bool, len(w))
	for _, x := range c {
		key := x.Key()
		before[key], touched[key] = true, true
	}
	known := true
	for _, x := range w {
		key := x.Key()
		touched[key] = true
		known = known && before[key]
	}
	if known && exact {
		return w, c, true
	}
	if (len(w)+len(c))*narrowPart > len(have) {
		return nil, nil, false
	}
	for _, x := range have {
		key := x.Key()
		if !touched[key] {
			continue
		}
		if !before[key] {
			// It exists because of an object of clean that is in want too: want
			// holds its key twice, which the full comparison reports.
			return nil, nil, false
		}
		h = append(h, x)
	}
	return w, h, true
}

// unequal walks along two lists that are mostly the same and gives what is not
// the same in both at its place. It is not ok when it loses its way.
func unequal[S any](a, b []S) (onlyA, onlyB []S, ok bool) {
	for len(a) > 0 && len(b) > 0 {
		if same(&a[0], &b[0]) {
			a, b = a[1:], b[1:]
			continue
		}
		skipA, skipB, found := resume(a, b)
		if !found {
			return nil, nil, false
		}
		onlyA, onlyB = append(onlyA, a[:skipA]...), append(onlyB, b[:skipB]...)
		a, b = a[skipA:], b[skipB:]
	}
	return append(onlyA, a...), append(onlyB, b...), true
}

// resume gives how much to leave out of both until they are the same again.
func resume[S any](a, b []S) (skipA, skipB int, found bool) {
	if len(a) <= 1 && len(b) <= 1 {
		return len(a), len(b), true
	}
	for n := 1; n <= narrowWindow; n++ {
		switch {
		case n < len(a) && n < len(b) && same(&a[n], &b[n]):
			return n, n, true
		case n < len(a) && same(&a[n], &b[0]):
			return n, 0, true
		case n < len(b) && same(&a[0], &b[n]):
			return 0, n, true
		case n >= len(a) && n >= len(b):
			return len(a), len(b), true
		}
	}
	return 0, 0, false
}

// same compares in the way that remember found. It takes pointers, as an object that
// becomes an interface is copied to the heap.
func same[S any](a, b *S) bool {
	if samer, ok := any(a).(Samer[S]); ok {
		return samer.Same(*b)
	}
	return any(*a) == any(*b)
}
