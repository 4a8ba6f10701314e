package main

import (
	"fmt"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fabric"
)

// compiled is the clusterset of a topology and its lock, without keys.
type compiled struct {
	fabric *fabric.Fabric
	source *document.Source
}

// compile reads a topology and its lock. What the lock lacks is what hawser allocate
// would give.
func (a *app) compile(args []string) (compiled, error) {
	t, err := a.readTopology(args)
	if err != nil {
		return compiled{}, err
	}
	set, source, err := a.load(t)
	if err != nil {
		return compiled{}, err
	}
	return a.compileFrom(t, set, source)
}

// compileFrom is compile for a topology that was loaded.
func (a *app) compileFrom(t topology, set *schema.ClusterSet, source *document.Source) (compiled, error) {
	lock, list := reconciler.Allocate(reconciler.LockInput{Set: set, File: t.lockFile, Committed: t.lock})
	if list.HasErrors() {
		return compiled{}, found{list: list, sources: t.files()}
	}
	if len(lock.Stale) > 0 {
		_, _ = fmt.Fprintln(a.err, "the lock is not complete: what it lacks is taken to be what hawser allocate gives")
	}
	f, list := render.Fabric(set, lock.Lock, func(string, string, int) (fabric.Key, error) {
		return fabric.Key{Public: render.KnownAfterPublish, Ed25519: render.KnownAfterPublish}, nil
	})
	if list.HasErrors() {
		return compiled{}, found{list: list, sources: t.files()}
	}
	return compiled{f, source}, nil
}

// place gives file and line of a topology path.
func (c compiled) place(path string) string {
	if c.source == nil { // a fabric alone
		return ""
	}
	pos := c.source.Pos(path)
	if !pos.IsValid() {
		return ""
	}
	return fmt.Sprintf("%s:%d", pos.File, pos.Line)
}
