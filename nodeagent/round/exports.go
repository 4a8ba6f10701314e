package round

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// effective keeps the fabric with the exports that were made in clusters, so that
// it is the same one while they are.
type effective struct {
	last    projection.Input
	hosts   map[string][]string // project.Hostnames of it
	have    *fabric.Fabric
	decided *mcs.Decision
}

// follow gives the effective fabric of an input, and how it was decided.
func (e *effective) follow(in projection.Input) (*fabric.Fabric, *mcs.Decision) {
	hosts := projection.Hostnames(in)
	if e.have != nil && sameExports(e.last, in) && reflect.DeepEqual(e.hosts, hosts) {
		return e.have, e.decided
	}
	next, decided := projection.EffectiveFabric(in)
	if e.have == nil || e.last.Fabric != in.Fabric || !reflect.DeepEqual(e.have.Exports, next.Exports) {
		e.have = next
	}
	e.last, e.hosts, e.decided = in, hosts, decided
	return e.have, e.decided
}

// sameExports compares what decides about exports. Nearly all of it is shared with
// the input before, so that this is quick.
func sameExports(a, b projection.Input) bool {
	return a.Fabric == b.Fabric && a.Cluster == b.Cluster && a.Facts.HasAPI == b.Facts.HasAPI &&
		reflect.DeepEqual(a.Facts.Exports, b.Facts.Exports) && reflect.DeepEqual(a.Facts.Imports, b.Facts.Imports) &&
		reflect.DeepEqual(a.Facts.Namespaces, b.Facts.Namespaces) &&
		reflect.DeepEqual(a.Live, b.Live) && reflect.DeepEqual(a.RestoredLive, b.RestoredLive)
}
