package converge

import (
	"context"
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diff"
)

// Equaler is implemented by objects of kinds with thousands of objects. Equal reports whether key
// and fields of two objects are equal, without building the texts of a diff.
type Equaler[S any] interface {
	Equal(other S) bool
}

// observedCache has objects that a stage need not read or compare again. It is valid until the
// version of the kind changes.
type observedCache[S diff.Spec] struct {
	version  string // empty = no cache
	observed []S

	clean   bool // observed equals the desired state of digest
	digest  string
	desired []S // of digest; nil if not stored
}

// observe reads the objects, unless the cache has the current version of the kind.
func (s *stage[D, S]) observe(ctx context.Context) error {
	version := ""
	if k, ok := s.kind.(Versioned); ok {
		var err error
		// The version is read before the objects. A change in between makes the next
		// version differ, so it is never missed.
		if version, err = k.Version(ctx); err != nil {
			return fmt.Errorf("version: %w", err)
		}
		if version != "" && version == s.cache.version {
			return nil
		}
	}
	s.cache = observedCache[S]{}
	observed, err := s.kind.Observe(ctx)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	s.cache.version, s.cache.observed = version, observed
	return nil
}

// compare returns all changes of this stage, and the number of existing objects.
func (s *stage[D, S]) compare(ctx context.Context, p *pass[D]) (changes []diff.Change[S], objects int, err error) {
	desired := s.desired(p.desired)
	if p.trustWritten && s.written != nil {
		want, have := s.changedParts(desired, s.written, s.written)
		if changes, err = diff.Compute(want, have); err != nil {
			return nil, 0, fmt.Errorf("compare: %w", err)
		}
		return changes, len(s.written), nil
	}
	if err := s.observe(ctx); err != nil {
		return nil, 0, err
	}
	cache := &s.cache
	if cache.clean && p.digest != "" && p.digest == cache.digest {
		return nil, len(cache.observed), nil
	}
	want, have := desired, cache.observed
	if cache.clean && cache.desired != nil {
		want, have = s.changedParts(desired, cache.desired, cache.observed)
	}
	if changes, err = diff.Compute(s.normalize(want, have), have); err != nil {
		return nil, 0, fmt.Errorf("compare: %w", err)
	}
	cache.clean, cache.digest, cache.desired = len(changes) == 0 && cache.version != "", p.digest, nil
	if _, ok := any(*new(S)).(Equaler[S]); cache.clean && ok {
		cache.desired = slices.Clone(desired)
	}
	return changes, len(cache.observed), nil
}

// changedParts returns the desired and the existing objects that may differ. Usually most objects
// have not changed since the last clean round. former has the desired objects of that round. They
// replace the observed objects, unless the kernel fills in fields.
func (s *stage[D, S]) changedParts(desired, former, observed []S) (want, have []S) {
	_, normalizes := s.kind.(Normalizer[S])
	if _, hasEqual := any(*new(S)).(Equaler[S]); normalizes || !hasEqual {
		return desired, observed
	}
	want, have = dropEqual(desired, former)
	known := make(map[string]bool, len(have))
	for _, x := range have {
		known[x.Key()] = true
	}
	for _, x := range want {
		if !known[x.Key()] {
			return desired, observed // a new object, or a duplicate key
		}
	}
	return want, have
}

// rememberWritten stores the objects of an urgent stage that exist after its changes: the desired
// objects, and the objects that deletes will remove later. If complete is false, some changes were
// not made, so the objects are unknown.
func (s *stage[D, S]) rememberWritten(p *pass[D], deletes []diff.Change[S], complete bool) {
	if !s.urgent {
		return
	}
	if s.written = nil; !complete {
		return
	}
	if _, normalizes := s.kind.(Normalizer[S]); normalizes {
		return
	}
	s.written = slices.Clone(s.desired(p.desired))
	for _, c := range deletes {
		s.written = append(s.written, c.Have)
	}
}

// dropEqual returns two lists without the objects that are equal at the same index: counted from
// the front, from the end, and in between if both have the same length.
func dropEqual[S any](a, b []S) (onlyA, onlyB []S) {
	// Pointers, because the conversion to an interface copies the object.
	equal := func(x, y *S) bool { return any(x).(Equaler[S]).Equal(*y) }
	for len(a) > 0 && len(b) > 0 && equal(&a[0], &b[0]) {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && equal(&a[len(a)-1], &b[len(b)-1]) {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) != len(b) {
		return a, b
	}
	for i := range a {
		if !equal(&a[i], &b[i]) {
			onlyA, onlyB = append(onlyA, a[i]), append(onlyB, b[i])
		}
	}
	return onlyA, onlyB
}

// normalize returns the desired objects with the fields that the kernel fills in.
func (s *stage[D, S]) normalize(desired, observed []S) []S {
	k, ok := s.kind.(Normalizer[S])
	if !ok || len(observed) == 0 {
		return desired
	}
	byKey := make(map[string]S, len(observed))
	for _, o := range observed {
		byKey[o.Key()] = o
	}
	normalized := make([]S, len(desired))
	for i, d := range desired {
		normalized[i] = d
		if o, exists := byKey[d.Key()]; exists {
			normalized[i] = k.Normalize(d, o)
		}
	}
	return normalized
}
