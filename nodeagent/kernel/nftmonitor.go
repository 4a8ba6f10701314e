package kernel

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/bell"
)

// nftResubscribe is the pause before the next try to hear of changes of nftables.
const nftResubscribe = time.Second

// Ruleset is table inet hawser in one network namespace, as one engine keeps it.
type Ruleset struct {
	opts  NFTOptions
	track *nftTrack
}

// NewRuleset makes it; nothing is opened yet. Changed is rung as Monitor says.
func NewRuleset(opts NFTOptions, changed bell.Bell) *Ruleset {
	return &Ruleset{opts: opts, track: &nftTrack{opts: opts, changed: changed}}
}

// Kinds gives the kinds of the table and of its elements, which know of each other and
// of what others do. They are for one engine.
func (r *Ruleset) Kinds() (*Tables, *Elements) {
	tables, elements := NewTables(r.opts), NewElements(r.opts)
	tables.track, elements.track = r.track, r.track
	return tables, elements
}

// Monitor rings whenever the table was changed, by whomever besides the kind of the
// elements. What changed is not told: look again. The monitor subscribes anew after
// an error, such as events that the kernel had to drop, and rings then too. It ends
// with ctx and gives its error.
func (r *Ruleset) Monitor(ctx context.Context) error {
	for {
		err := r.track.wait(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.track.changed.Ring()
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, errNftInterrupted) {
			continue // nothing is wrong with the subscription
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(nftResubscribe):
		}
	}
}
