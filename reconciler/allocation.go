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

// LockInput is what decides which addresses are in force.
type LockInput struct {
	Set       *schema.ClusterSet
	File      string // name of the committed lock for messages
	Committed []byte // nil when there is none
	Published []byte // the lock that is in force; nil when nothing is published
	// FixMoves has a committed lock that would move something published set right, with
	// a warning. Otherwise it is an error.
	FixMoves bool
}

// Allocation is the lock that a topology is built with.
type Allocation struct {
	Lock *lockfile.Lock
	// Stale holds what the committed lock lacks; empty means that it is Lock.
	Stale    diag.List
	Warnings diag.List // what had to move, and what another holder has
}

// Allocate gives the lock for a topology. What is published stays with its holder.
// A committed lock that agrees with that and is complete is taken as it is;
// otherwise what is missing is taken over from the published one, or allocated.
// The list holds errors when a lock cannot be read, when the committed one would
// move something published (overlay.CodeWouldMove), or when something does not fit.
func Allocate(in LockInput) (Allocation, diag.List) {
	committed, list := lockfile.Read(in.File, in.Committed)
	if list.HasErrors() {
		return Allocation{}, list
	}
	published, list := lockfile.Read("published "+LockFile, in.Published)
	if list.HasErrors() { // without it addresses in force might move
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
	if list.HasErrors() {
		return Allocation{}, append(found, list...)
	}
	if len(in.Published) > 0 { // base holds more
		stale = allocate.Check(in.Set, committed)
	}
	if len(stale) == 0 && mended.HasErrors() {
		stale = mended
	}
	if len(stale) == 0 {
		if lost := committed.MissingFrom(lock); len(lost) > 0 {
			stale = diag.List{{Severity: diag.Error, Code: "lock-stale", Pos: diag.Pos{File: in.File},
				Summary: "the lock is stale: it lacks what is published of " + humanize.FirstN(lost, 3),
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
