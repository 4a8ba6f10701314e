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
	opts    NFTOptions
	tracker *nftChangeTracker
}

// NewRuleset returns a Ruleset, without a socket yet. Monitor fires changed.
func NewRuleset(opts NFTOptions, changed trigger.Trigger) *Ruleset {
	return &Ruleset{opts: opts, tracker: &nftChangeTracker{opts: opts, changed: changed}}
}

// Kinds returns the kinds of the table and of its elements, which share the change tracker.
// Only one engine may use them.
func (r *Ruleset) Kinds() (*Tables, *Elements) {
	tables, elements := NewTables(r.opts), NewElements(r.opts)
	tables.tracker, elements.tracker = r.tracker, r.tracker
	return tables, elements
}

// Monitor fires the trigger when the table changed, except by the kind of the elements. After
// an error, such as lost events, it fires and subscribes again. It returns ctx's error when ctx
// is done.
func (r *Ruleset) Monitor(ctx context.Context) error {
	for {
		err := r.tracker.wait(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.tracker.changed.Fire()
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
