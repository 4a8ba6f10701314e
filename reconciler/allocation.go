package reconciler

import (
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

// LockInput is what decides which addresses are in force.
type LockInput struct {
	Set       *schema.ClusterSet
	File      string // name of the committed lock for messages
	Committed []byte // nil when there is none
	Published []byte // the lock that is in force; nil when nothing is published
}

// Allocation is the lock that a topology is built with.
type Allocation struct {
	Lock *schema.Lock
	// Stale holds what the committed lock lacks; empty means that it is Lock.
	Stale    diag.List
	Warnings diag.List // what had to move
}

// Allocate gives the lock for a topology. A committed lock that is complete is
// taken as it is. Otherwise addresses that are in force without having been
// committed are kept, and only what is still missing is allocated. The list
// holds errors when the lock cannot be read or something does not fit.
func Allocate(in LockInput) (Allocation, diag.List) {
	committed, list := schema.ReadLock(in.File, in.Committed)
	if list.HasErrors() {
		return Allocation{}, list
	}
	stale := schema.CheckLock(in.Set, committed)
	if len(stale) == 0 {
		return Allocation{Lock: committed}, nil
	}
	published, list := schema.ReadLock("published "+LockFile, in.Published)
	if list.HasErrors() { // without it addresses in force might move
		return Allocation{}, list
	}
	lock, list := schema.Allocate(in.Set, committed.Inherit(published))
	if list.HasErrors() {
		return Allocation{}, list
	}
	return Allocation{Lock: lock, Stale: stale, Warnings: list}, nil
}
