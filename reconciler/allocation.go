package reconciler

import (
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/lockfile"
	"hawser.dev/hawser/schema/lockmerge"
)

// LockInput is the input that determines the current addresses.
type LockInput struct {
	Set       *schema.ClusterSet
	File      string // name of the committed lock for messages
	Committed []byte // committed lock; nil if absent
	Published []byte // published lock; nil before the first publication
	// PublishedUnknown keeps all committed allocations, because each may be published.
	PublishedUnknown bool
	// FixMoves corrects, with a warning, a committed lock that would move a published
	// allocation. Otherwise such a lock is an error.
	FixMoves bool
}

// Allocation is the lock that a topology is built with.
type Allocation struct {
	Lock *lockfile.Lock
	// Stale lists what the committed lock lacks; empty = the committed lock equals Lock.
	Stale    diag.List
	Warnings diag.List // moved allocations, and allocations with another holder
}

// Allocate returns the lock for a topology. Published allocations stay with their claims.
// A complete committed lock that agrees with them does not change. Otherwise missing
// allocations come from the published lock, or are new. A cluster that was never published is
// allocated from scratch if its prefixes changed. The list holds errors if a lock
// cannot be read, if the committed lock would move a published allocation
// (lockmerge.CodeWouldMove), or if an allocation does not fit.
func Allocate(in LockInput) (Allocation, diag.List) {
	committed, list := lockfile.Read(in.File, in.Committed)
	if list.HasErrors() {
		return Allocation{}, list
	}
	published, list := lockfile.Read("published "+LockFile, in.Published)
	if list.HasErrors() { // without the lock current addresses might move
		return Allocation{}, list
	}
	base, found := committed, diag.List(nil)
	if len(in.Published) > 0 {
		base, found = lockmerge.OntoPublished(committed, in.Set, published)
	}
	if found.HasErrors() && !in.FixMoves {
		return Allocation{}, found
	}
	mended := slices.Clone(found)
	for i := range found {
		found[i].Severity = diag.Warning
	}
	lock, list, stale := allocate.AllocateAndCheck(in.Set, base)
	var resized []string
	if !in.PublishedUnknown {
		resized = base.Resized(in.Set, lock, published)
	}
	if len(resized) > 0 {
		lock, list = allocate.Allocate(in.Set, base.WithoutClusters(resized))
	}
	if list.HasErrors() {
		return Allocation{}, append(found, list...)
	}
	switch {
	case len(resized) > 0:
		stale = diag.List{{Severity: diag.Error, Code: "lock-stale", Pos: diag.Pos{File: in.File},
			Summary: "the lock is stale: it has other prefixes of " + humanize.FirstN(resized, 3), Hint: "run hawser allocate, and commit the lock"}}
	case len(in.Published) > 0: // base has more allocations
		stale = allocate.Check(in.Set, committed)
	}
	if len(stale) == 0 && mended.HasErrors() {
		stale = mended
	}
	if len(stale) == 0 {
		if lost := committed.MissingFrom(lock); len(lost) > 0 {
			stale = diag.List{{Severity: diag.Error, Code: "lock-stale", Pos: diag.Pos{File: in.File},
				Summary: "the lock is stale: it lacks published allocations of " + humanize.FirstN(lost, 3),
				Hint:    "run hawser allocate, and commit the lock"}}
		}
	}
	if len(stale) == 0 {
		return Allocation{Lock: committed, Warnings: found}, nil
	}
	if len(in.Published) > 0 {
		lock = lock.PruneReleased(published)
	}
	return Allocation{Lock: lock, Stale: stale, Warnings: append(found, list...)}, nil
}
