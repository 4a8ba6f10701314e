package kernel

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Ruleset is table inet hawser in one network namespace, for one engine.
type Ruleset struct {
	opts  NFTOptions
	track *nftChangeTracker
}

// NewRuleset returns a Ruleset, without a socket yet. Monitor rings changed.
func NewRuleset(opts NFTOptions, changed trigger.Trigger) *Ruleset {
	return &Ruleset{opts: opts, track: &nftChangeTracker{opts: opts, changed: changed}}
}

// Kinds returns the kinds of the table and of its elements, which share the tracker of
// changes. They are for one engine.
func (r *Ruleset) Kinds() (*Tables, *Elements) {
	tables, elements := NewTables(r.opts), NewElements(r.opts)
	tables.track, elements.track = r.track, r.track
	return tables, elements
}

// Monitor rings whenever the table changed, except by the kind of the elements. After an
// error, such as events that the kernel had to drop, it rings and subscribes again. It
// returns ctx's error when ctx is done.
func (r *Ruleset) Monitor(ctx context.Context) error {
	for {
		err := r.track.wait(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.track.changed.Fire()
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, nftables.ErrInterrupted) {
			continue // the next subscription does not fail
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resubscribe):
		}
	}
}
