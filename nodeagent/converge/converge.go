// Package converge turns a desired state into what is: for each stage it
// observes, compares and applies the least change. Creates and updates go
// forwards through the stages, deletes go backwards, so that policy stands
// before traffic arrives and leaves after it. It knows nothing of networks.
package converge

import (
	"context"
	"errors"
	"fmt"

	"hawser.dev/hawser/internal/diff"
)

// Kind is how one sort of object is read and written.
type Kind[S diff.Spec] interface {
	// Name names the kind in plans, logs and metrics: "route".
	Name() string
	// Observe gives the objects that exist and are ours, and only those.
	Observe(ctx context.Context) ([]S, error)
	// Apply makes the changes, each one that it can. It is called with creates,
	// updates and replaces, or with deletes only. Deleting what is already gone
	// is success; creating over an object that is not ours is ErrConflict.
	// Errors that concern single changes are KeyErrors joined with errors.Join
	// (Each does it); any other error means that every change of the call failed.
	Apply(ctx context.Context, changes []diff.Change[S]) error
}

// Normalizer is a Kind that leaves some fields to the kernel: Adopt gives want
// with those fields copied from have, after which equality is plain. It is
// called for objects that exist on both sides.
type Normalizer[S diff.Spec] interface {
	Normalize(want, have S) S
}

// Batcher is a Kind whose changes need not all be made at once. Pieces parts those of an
// Apply into some that are made one after the other; what is urgent is done between them.
type Batcher[S diff.Spec] interface {
	Batches(changes []diff.Change[S]) [][]diff.Change[S]
}

// Versioned is a Kind that can tell cheaply whether anything changed since the
// last Observe, in either direction and by whomever but its own Apply, after which
// it is read again in any case. Two equal stamps that are not empty promise that
// Observe would give the same again.
type Versioned interface {
	Version(ctx context.Context) (string, error)
}

// ErrConflict says that an object with the wanted name exists and is not ours.
var ErrConflict = errors.New("exists and is not ours")

// ErrMassDelete says that a desired state asks for nothing, so that everything of
// ours would go, without saying that this is meant.
var ErrMassDelete = errors.New("would delete everything and does not say decommission")

// ErrBlocked says that a change waits for something that is not there yet, such
// as a route for its link. It is no failure: the next trigger tries again.
type ErrBlocked struct {
	On string // what it waits for: "link hw-wg1"
}

// Error says what the change waits for.
func (e ErrBlocked) Error() string { return "waits for " + e.On }

// KeyError is what went wrong with one change of an Apply.
type KeyError struct {
	Key string
	Err error
}

// Error gives key and cause.
func (e KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e KeyError) Unwrap() error { return e.Err }

// Each applies the changes one by one and joins what went wrong as KeyErrors.
// It stops early only when ctx ends.
func Each[S diff.Spec](ctx context.Context, changes []diff.Change[S], apply func(diff.Change[S]) error) error {
	var errs []error
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			errs = append(errs, KeyError{Key: c.Key, Err: fmt.Errorf("not begun: %w", err)})
			continue
		}
		if err := apply(c); err != nil {
			errs = append(errs, KeyError{Key: c.Key, Err: err})
		}
	}
	return errors.Join(errs...)
}

// split sorts an error of Apply into those of single keys and the rest.
func split(err error, byKey map[string]error) (rest error) {
	var single KeyError
	if !errors.As(err, &single) {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var others []error
		for _, e := range joined.Unwrap() {
			others = append(others, split(e, byKey))
		}
		return errors.Join(others...)
	}
	byKey[single.Key] = errors.Join(byKey[single.Key], single.Err)
	return nil
}
