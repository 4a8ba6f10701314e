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

// AllocateInput is the input of Allocate.
type AllocateInput struct {
	Set       *schema.ClusterSet
	File      string // path of the committed lock, for messages
	Committed []byte // committed lock; nil if absent
	Published []byte // published lock; nil before the first publication
	// PublishedUnknown means that the published lock is unknown. Allocate then retains all
	// committed allocations, because any of them may be published.
	PublishedUnknown bool
	// FixMoves corrects a committed lock that would move a published allocation, and adds a
	// warning. Without FixMoves such a lock is an error.
	FixMoves bool
}

// Allocation is the result of Allocate.
type Allocation struct {
	Lock *lockfile.Lock
	// Stale lists why the committed lock differs from Lock; empty if they are equal.
	Stale    diag.List
	Warnings diag.List // corrected moves, duplicate addresses, warnings of allocate.Allocate
}

// Allocate returns the lock for a topology. Published allocations keep their claims. The
// committed lock does not change if it is complete and agrees with the published lock. Otherwise
// missing allocations come from the published lock, or are new. If the prefixes of an unpublished
// cluster change, its block and addresses are allocated again; gateway addresses stay.
//
// The list has errors if a lock cannot be read or an allocation does not fit. The code
// lockmerge.CodeWouldMove means that the committed lock would move a published allocation.
func Allocate(in AllocateInput) (Allocation, diag.List) {
	committed, list := lockfile.Read(in.File, in.Committed)
	if list.HasErrors() {
		return Allocation{}, list
	}
	published, list := lockfile.Read("published "+LockFile, in.Published)
	if list.HasErrors() { // without the published lock, published addresses could move
		return Allocation{}, list
	}
	merged, mergeFindings := committed, diag.List(nil)
	if len(in.Published) > 0 {
		merged, mergeFindings = lockmerge.OntoPublished(committed, in.Set, published)
	}
	if mergeFindings.HasErrors() && !in.FixMoves {
		return Allocation{}, mergeFindings
	}
	moveErrors := slices.Clone(mergeFindings)
	for i := range mergeFindings {
		mergeFindings[i].Severity = diag.Warning
	}
	lock, list, stale := allocate.AllocateAndCheck(in.Set, merged)
	var resized []string
	if !in.PublishedUnknown {
		resized = merged.Resized(in.Set, lock, published)
	}
	if len(resized) > 0 {
		lock, list = allocate.Allocate(in.Set, merged.WithoutClusters(resized))
	}
	if list.HasErrors() {
		return Allocation{}, append(mergeFindings, list...)
	}
	switch {
	case len(resized) > 0:
		stale = diag.List{{Severity: diag.Error, Code: "lock-stale", Pos: diag.Pos{File: in.File},
			Summary: "the lock is stale: it has other prefixes of " + humanize.FirstN(resized, 3), Hint: "run hawser allocate, and commit the lock"}}
	case len(in.Published) > 0: // stale is about merged, which has the published allocations
		stale = allocate.Check(in.Set, committed)
	}
	if len(stale) == 0 && moveErrors.HasErrors() {
		stale = moveErrors
	}
	if len(stale) == 0 {
		if missing := committed.MissingFrom(lock); len(missing) > 0 {
			stale = diag.List{{Severity: diag.Error, Code: "lock-stale", Pos: diag.Pos{File: in.File},
				Summary: "the lock is stale: it lacks published allocations of " + humanize.FirstN(missing, 3),
				Hint:    "run hawser allocate, and commit the lock"}}
		}
	}
	if len(stale) == 0 {
		return Allocation{Lock: committed, Warnings: mergeFindings}, nil
	}
	if len(in.Published) > 0 {
		lock = lock.PruneReleased(published)
	}
	return Allocation{Lock: lock, Stale: stale, Warnings: append(mergeFindings, list...)}, nil
}
