package objects

import (
	"fmt"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/objects/corefile"
)

// perRank is how much longer each gateway waits than the one before it, until it
// writes what stays wrong.
const perRank = 2 * time.Second

// turn is what all kinds need to know in a pass. Only the engine's goroutine uses it.
type turn struct {
	rank    int // gateways that write before this one
	settled bool
	forward corefile.Forward
	// undecided says that it is not known yet where the cluster's DNS takes forward from.
	undecided bool
}

// Patience leaves changes to those who are before.
func (t *turn) Patience() time.Duration { return time.Duration(t.rank) * perRank }

// may refuses deletes as long as what is wanted may not be all.
func (t *turn) may(op diff.Op) error {
	if op == diff.Delete && !t.settled {
		return converge.ErrBlocked{On: "the other clusters, to be heard"}
	}
	return nil
}

// changes tells which parts of an object a change is about.
func changes[S diff.Spec](c diff.Change[S], names ...string) bool {
	for _, d := range c.Deltas() {
		for _, name := range names {
			if d.Name == name {
				return true
			}
		}
	}
	return false
}

// foreign is the error about an object that is somebody else's.
func foreign(kind, key string) error {
	return fmt.Errorf("%s %s %w: it has no label %s=%s", kind, key, converge.ErrConflict, managedBy, manager)
}
