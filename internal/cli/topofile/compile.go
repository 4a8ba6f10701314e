package topofile

import (
	"fmt"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fabric"
)

// Compiled is the clusterset of a topology and its lock, without keys.
type Compiled struct {
	Fabric *fabric.Fabric
	Source *document.Source
}

// Compile reads a topology and its lock. It fills in missing allocations like hawser allocate.
func Compile(env *cli.Env, args []string) (Compiled, error) {
	t, err := Read(env, args)
	if err != nil {
		return Compiled{}, err
	}
	set, source, err := Load(env, t)
	if err != nil {
		return Compiled{}, err
	}
	return CompileLoaded(env, t, set, source)
}

// CompileLoaded compiles a loaded topology.
func CompileLoaded(env *cli.Env, t File, set *schema.ClusterSet, source *document.Source) (Compiled, error) {
	lock, list := reconciler.Allocate(reconciler.AllocateInput{Set: set, File: t.LockPath, Committed: t.Lock})
	if list.HasErrors() {
		return Compiled{}, cli.FindingsError{List: list, Files: t.Texts()}
	}
	if len(lock.Stale) > 0 {
		_, _ = fmt.Fprintln(env.Err, "warning: the lock is incomplete; using the addresses that hawser allocate would assign")
	}
	f, list := render.Fabric(set, lock.Lock, func(string, string, int) (fabric.Key, error) {
		return fabric.Key{Public: render.KnownAfterPublish, Ed25519: render.KnownAfterPublish}, nil
	})
	if list.HasErrors() {
		return Compiled{}, cli.FindingsError{List: list, Files: t.Texts()}
	}
	return Compiled{f, source}, nil
}

// PositionOf returns file and line of a topology path.
func (c Compiled) PositionOf(path string) string {
	if c.Source == nil { // the fabric has no topology file
		return ""
	}
	pos := c.Source.Pos(path)
	if !pos.IsValid() {
		return ""
	}
	return fmt.Sprintf("%s:%d", pos.File, pos.Line)
}
