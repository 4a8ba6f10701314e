package allocate

import (
	"fmt"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/lockfile"
)

// ordinalSet maps the used gateway ordinals of a cluster to their owners.
type ordinalSet map[int]lockfile.Claim

// allocateOrdinals assigns the smallest free ordinal of its cluster to every gateway
// without one. A removed gateway keeps its ordinal and addresses until GC.
func (a *allocator) allocateOrdinals() {
	taken := map[string]ordinalSet{}
	for _, live := range []bool{true, false} {
		for _, s := range a.lock.SortedOrdinals() {
			if a.requested[s] == live {
				a.retainOrdinal(taken, s, live)
			}
		}
	}
	for _, d := range a.requests {
		if d.Kind == lockfile.ClaimGateway {
			a.assignOrdinal(taken, d)
		}
	}
}

// retainOrdinal retains the ordinal of a gateway unless another gateway of the cluster
// has it too, as after a merge of two branches.
func (a *allocator) retainOrdinal(taken map[string]ordinalSet, s lockfile.Claim, live bool) {
	if taken[s.Cluster] == nil {
		taken[s.Cluster] = ordinalSet{}
	}
	h := a.lock.Ordinals[s]
	owner, dup := taken[s.Cluster][h.Ordinal]
	if !dup {
		taken[s.Cluster][h.Ordinal] = s
		return
	}
	delete(a.lock.Ordinals, s)
	then := "it gets another"
	if !live {
		then = "it is no longer reserved for the removed gateway"
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: s.OrdinalPath(), Pos: h.Pos,
		Related: []diag.Related{{Path: owner.OrdinalPath(), Pos: a.lock.Ordinals[owner].Pos}},
		Summary: fmt.Sprintf("is ordinal %d, which belongs to %s; %s", h.Ordinal, owner.Path(), then),
		Hint:    "both were allocated on different branches; the tunnels of the gateway that moves restart"})
}

func (a *allocator) assignOrdinal(taken map[string]ordinalSet, d lockfile.Request) {
	if _, has := a.lock.Ordinals[d.Claim]; has {
		return
	}
	for ordinal := range fabric.MaxGateways {
		if _, used := taken[d.Cluster][ordinal]; used {
			continue
		}
		if taken[d.Cluster] == nil {
			taken[d.Cluster] = ordinalSet{}
		}
		taken[d.Cluster][ordinal] = d.Claim
		a.lock.Ordinals[d.Claim] = lockfile.OrdinalAllocation{Ordinal: ordinal}
		a.added = append(a.added, d.OrdinalPath())
		return
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Error, Code: "no-ordinal", Path: d.Path,
		Summary: fmt.Sprintf("all %d ordinals of the cluster are in use or reserved for removed gateways", fabric.MaxGateways),
		Hint:    "hawser allocate --gc frees the ordinals of removed gateways"})
}
