package round

import (
	"reflect"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// effectiveFabric caches the fabric with the dynamic exports. The pointer to this fabric changes only
// if the fabric or the exports change.
type effectiveFabric struct {
	last    projection.Input
	hosts   map[string][]string // projection.Hostnames of the fabric
	have    *fabric.Fabric
	decided *mcs.Decision
}

// update returns the effective fabric of an input, and the decision about its exports.
func (e *effectiveFabric) update(in projection.Input) (*fabric.Fabric, *mcs.Decision) {
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

// sameExports reports whether two inputs have the same fields that affect exports. It is fast,
// because an input shares most values with the previous input.
func sameExports(a, b projection.Input) bool {
	return a.Fabric == b.Fabric && a.Digest == b.Digest && a.Cluster == b.Cluster && a.Facts.HasAPI == b.Facts.HasAPI &&
		reflect.DeepEqual(a.Facts.Exports, b.Facts.Exports) && reflect.DeepEqual(a.Facts.Imports, b.Facts.Imports) &&
		reflect.DeepEqual(a.Facts.Namespaces, b.Facts.Namespaces) &&
		reflect.DeepEqual(a.ClusterStates, b.ClusterStates) && reflect.DeepEqual(a.RestoredClusterStates, b.RestoredClusterStates)
}
