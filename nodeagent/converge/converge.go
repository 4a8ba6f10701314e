// Package converge makes the observed state equal to a desired state. Each stage observes,
// compares and applies the smallest change. Creates and updates walk forward through the
// stages, deletes walk backward: policy exists before traffic arrives, and is removed after
// it. The package knows nothing about networks.
//
// One walk over the stages is a pass. A round obtains the desired state and runs one to three full
// passes, over all stages. A round is verify-only if the desired state has not changed since the last
// clean round; its changes are then drift. An urgent pass writes only the stages of MarkUrgent. It
// runs between two rounds, or between two stages of a full pass.
package converge

import (
	"context"
	"errors"
	"fmt"

	"hawser.dev/hawser/internal/diff"
)

// Kind reads and writes one kind of object.
type Kind[S diff.Spec] interface {
	// Name returns the name of the kind in plans, logs and metrics, such as "route".
	Name() string
	// Observe returns the existing objects of Hawser, and no foreign ones.
	Observe(ctx context.Context) ([]S, error)
	// Apply makes as many of the changes as it can. One call has creates, updates and
	// replaces, or only deletes. To delete an object that does not exist is success. To create
	// an object where a foreign one exists is ErrConflict. Errors of single changes are
	// KeyErrors joined by errors.Join, as Each returns them. Any other error means that all
	// changes of the call failed.
	Apply(ctx context.Context, changes []diff.Change[S]) error
}

// Normalizer is a Kind whose kernel or API server fills in some fields. Normalize returns want with
// these fields copied from have; the engine then compares the result with have. It is called for
// objects that exist on both sides.
type Normalizer[S diff.Spec] interface {
	Normalize(want, have S) S
}

// Batcher is a Kind that may make its changes in several batches. Batches splits the changes of one
// Apply. Urgent passes run between the batches.
type Batcher[S diff.Spec] interface {
	Batches(changes []diff.Change[S]) [][]diff.Change[S]
}

// Versioned is a Kind that can detect cheaply whether any object changed since the last Observe.
// Version is opaque, like a resourceVersion: two equal versions that are not empty mean that
// Observe would return the same again. Changes by the Kind's own Apply need not count, as the
// engine reads again after them.
type Versioned interface {
	Version(ctx context.Context) (string, error)
}

// ErrConflict means that a foreign object has the desired name.
var ErrConflict = errors.New("already exists and is not managed by Hawser")

// ErrMassDelete means that an empty desired state would remove all objects of Hawser.
var ErrMassDelete = errors.New("refusing to delete everything: the fabric does not set decommission")

// ErrBlocked means that a change needs an object that does not exist yet, as a route needs its
// device. It is not a failure: the next pass tries again.
type ErrBlocked struct {
	On string // the missing object: "link hw-wg1"
}

// Error names the missing object.
func (e ErrBlocked) Error() string { return "waits for " + e.On }

// KeyError is the error of one change of an Apply.
type KeyError struct {
	Key string
	Err error
}

// Error returns key and cause.
func (e KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e KeyError) Unwrap() error { return e.Err }

// Each applies the changes one by one and joins their errors as KeyErrors. It stops early only if
// ctx is done.
func Each[S diff.Spec](ctx context.Context, changes []diff.Change[S], apply func(diff.Change[S]) error) error {
	var errs []error
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			errs = append(errs, KeyError{Key: c.Key, Err: fmt.Errorf("not attempted: %w", err)})
			continue
		}
		if err := apply(c); err != nil {
			errs = append(errs, KeyError{Key: c.Key, Err: err})
		}
	}
	return errors.Join(errs...)
}

// splitErrors stores the errors of single keys in byKey, and returns the rest of an error of Apply.
func splitErrors(err error, byKey map[string]error) (rest error) {
	var single KeyError
	if !errors.As(err, &single) {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var others []error
		for _, e := range joined.Unwrap() {
			others = append(others, splitErrors(e, byKey))
		}
		return errors.Join(others...)
	}
	byKey[single.Key] = errors.Join(byKey[single.Key], single.Err)
	return nil
}
