package convergetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

// World holds objects of one kind in memory. It is safe for concurrent use: tests change it while
// an engine runs.
type World[S diff.Spec] struct {
	mu       sync.Mutex
	own      map[string]S
	foreign  map[string]S
	version  int
	observed int
	calls    []string

	// Fault returns the error of a change, nil if it succeeds; may be nil.
	Fault func(diff.Change[S]) error
}

// NewWorld returns an empty world.
func NewWorld[S diff.Spec]() *World[S] {
	return &World[S]{own: map[string]S{}, foreign: map[string]S{}}
}

// Put adds or changes an own object, without a call of the kind.
func (w *World[S]) Put(s S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own[s.Key()] = s
	w.version++
}

// PutForeign adds a foreign object.
func (w *World[S]) PutForeign(s S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreign[s.Key()] = s
	w.version++
}

// Foreign returns the keys of foreign objects.
func (w *World[S]) Foreign() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.foreign))
}

// Remove removes an own object.
func (w *World[S]) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.own, key)
	w.version++
}

// Objects returns the own objects, by key.
func (w *World[S]) Objects() []S {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sorted()
}

func (w *World[S]) sorted() []S {
	return slices.SortedFunc(maps.Values(w.own), func(a, b S) int { return cmp.Compare(a.Key(), b.Key()) })
}

// Observed returns the number of times that a kind read the world.
func (w *World[S]) Observed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

// Calls returns the changes of all kinds, in order, such as "+ a".
func (w *World[S]) Calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// Kind returns a kind that reads and writes the world.
func (w *World[S]) Kind(name string) *Kind[S] { return &Kind[S]{name: name, world: w} }

// Kind is a kind in memory.
type Kind[S diff.Spec] struct {
	name  string
	world *World[S]
}

// Name returns the name of the kind.
func (k *Kind[S]) Name() string { return k.name }

// Observe returns the own objects.
func (k *Kind[S]) Observe(context.Context) ([]S, error) {
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	k.world.observed++
	return k.world.sorted(), nil
}

// Apply makes the changes.
func (k *Kind[S]) Apply(ctx context.Context, changes []diff.Change[S]) error {
	return converge.Each(ctx, changes, func(c diff.Change[S]) error {
		w := k.world
		if w.Fault != nil {
			if err := w.Fault(c); err != nil {
				return err
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, string(c.Op)+" "+c.Key)
		if _, taken := w.foreign[c.Key]; taken && c.Op == diff.Create {
			return converge.ErrConflict
		}
		w.version++
		if c.Op == diff.Delete {
			delete(w.own, c.Key)
		} else {
			w.own[c.Key] = c.Want
		}
		return nil
	})
}

// VersionedKind returns a kind of the world whose version changes with every write.
func (w *World[S]) VersionedKind(name string) *VersionedKind[S] {
	return &VersionedKind[S]{Kind[S]{name: name, world: w}}
}

// VersionedKind is a Kind that is also converge.Versioned.
type VersionedKind[S diff.Spec] struct{ Kind[S] }

// Version returns the number of changes so far.
func (k *VersionedKind[S]) Version(context.Context) (string, error) {
	k.world.mu.Lock()
	defer k.world.mu.Unlock()
	return strconv.Itoa(k.world.version), nil
}
