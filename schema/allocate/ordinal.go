package allocate

import (
	"fmt"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/lockfile"
)

// ordinalOwners maps the used gateway ordinals of a cluster to their owners.
type ordinalOwners map[int]lockfile.Claim

// allocateOrdinals assigns the smallest free ordinal of its cluster to every gateway
// without one. A removed gateway keeps its ordinal and addresses until GC.
func (a *allocator) allocateOrdinals() {
	owners := map[string]ordinalOwners{}
	for _, requested := range []bool{true, false} {
		for _, s := range a.lock.SortedOrdinals() {
			if a.requested[s] == requested {
				a.retainOrdinal(owners, s, requested)
			}
		}
	}
	for _, d := range a.requests {
		if d.Kind == lockfile.ClaimGateway {
			a.assignOrdinal(owners, d)
		}
	}
}

// retainOrdinal retains the ordinal of a gateway unless another gateway of the cluster
// has it too, as after a merge of two branches.
func (a *allocator) retainOrdinal(
	owners map[string]ordinalOwners, s lockfile.Claim, requested bool,
) {
	if owners[s.Cluster] == nil {
		owners[s.Cluster] = ordinalOwners{}
	}
	h := a.lock.Ordinals[s]
	owner, dup := owners[s.Cluster][h.Ordinal]
	if !dup {
		owners[s.Cluster][h.Ordinal] = s
		return
	}
	delete(a.lock.Ordinals, s)
	consequence := "it gets another"
	if !requested {
		consequence = "it is no longer reserved for the removed gateway"
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: s.OrdinalPath(), Pos: h.Pos,
		Related: []diag.Related{{Path: owner.OrdinalPath(), Pos: a.lock.Ordinals[owner].Pos}},
		Summary: fmt.Sprintf("is ordinal %d, which belongs to %s; %s",
			h.Ordinal, owner.Path(), consequence),
		Hint: "both were allocated on different branches; the tunnels of the gateway that moves restart"})
}

func (a *allocator) assignOrdinal(owners map[string]ordinalOwners, d lockfile.Request) {
	if _, has := a.lock.Ordinals[d.Claim]; has {
		return
	}
	for ordinal := range fabric.MaxGateways {
		if _, used := owners[d.Cluster][ordinal]; used {
			continue
		}
		if owners[d.Cluster] == nil {
			owners[d.Cluster] = ordinalOwners{}
		}
		owners[d.Cluster][ordinal] = d.Claim
		a.lock.Ordinals[d.Claim] = lockfile.OrdinalAllocation{Ordinal: ordinal}
		a.added = append(a.added, d.OrdinalPath())
		return
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Error, Code: "no-ordinal", Path: d.Path,
		Summary: fmt.Sprintf("all %d ordinals of the cluster are in use or reserved for removed gateways", fabric.MaxGateways),
		Hint:    "hawser allocate --gc frees the ordinals of removed gateways"})
}
