package nodeagent

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// effective keeps the fabric with the exports that were made in clusters, so that
// it is the same one while they are. Only the engine's goroutine uses it.
type effective struct {
	base, have *fabric.Fabric
}

// follow gives the effective fabric of an input.
func (e *effective) follow(in project.Input) *fabric.Fabric {
	next := project.Effective(in)
	if e.base != in.Fabric || e.have == nil || !reflect.DeepEqual(e.have.Exports, next.Exports) {
		e.base, e.have = in.Fabric, next
	}
	return e.have
}
