package schema

import (
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// heldLane is the lane that the lock holds for a gateway.
type heldLane struct {
	lane int
	pos  diag.Pos
}

// lanePath names a gateway's lane as the lock file does.
func (s slot) lanePath() string { return s.path() + ".lane" }

// Lane gives the lane of a gateway; false when the lock holds none.
func (l *Lock) Lane(cluster, gateway string) (int, bool) {
	h, ok := l.lanes[slot{kind: slotGateway, cluster: cluster, name: gateway}]
	return h.lane, ok
}

// sortedLanes gives the gateways that have a lane, in order.
func (l *Lock) sortedLanes() []slot {
	slots := make([]slot, 0, len(l.lanes))
	for s := range l.lanes {
		slots = append(slots, s)
	}
	slices.SortFunc(slots, slot.compare)
	return slots
}

// laneSet is which lanes of a cluster are taken, and by whom.
type laneSet map[int]slot

// allocateLanes gives every gateway the smallest lane that is free within its
// cluster. A gateway that left keeps its own, as its addresses, until GC.
func (a *allocator) allocateLanes() {
	taken := map[string]laneSet{}
	live := make(map[slot]bool, len(a.demands))
	for _, d := range a.demands {
		live[d.slot] = d.kind == slotGateway
	}
	for _, there := range []bool{true, false} {
		for _, s := range a.lock.sortedLanes() {
			if live[s] == there {
				a.claimLane(taken, s, there)
			}
		}
	}
	for _, d := range a.demands {
		if d.kind == slotGateway {
			a.fillLane(taken, d)
		}
	}
}

// claimLane lets a gateway keep its lane unless another one of the cluster has
// it, which a merge of two branches can bring about.
func (a *allocator) claimLane(taken map[string]laneSet, s slot, live bool) {
	if taken[s.cluster] == nil {
		taken[s.cluster] = laneSet{}
	}
	h := a.lock.lanes[s]
	owner, dup := taken[s.cluster][h.lane]
	if !dup {
		taken[s.cluster][h.lane] = s
		return
	}
	delete(a.lock.lanes, s)
	then := "it gets another"
	if !live {
		then = "it is no longer reserved for what was removed"
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: s.lanePath(), Pos: h.pos,
		Related: []diag.Related{{Path: owner.lanePath(), Pos: a.lock.lanes[owner].pos}},
		Summary: fmt.Sprintf("is lane %d, which belongs to %s; %s", h.lane, owner.path(), then),
		Hint:    "both were allocated on different branches; the tunnels of the gateway that moves are built anew"})
}

func (a *allocator) fillLane(taken map[string]laneSet, d demand) {
	if _, has := a.lock.lanes[d.slot]; has {
		return
	}
	for lane := range fabric.MaxLanes {
		if _, used := taken[d.cluster][lane]; used {
			continue
		}
		if taken[d.cluster] == nil {
			taken[d.cluster] = laneSet{}
		}
		taken[d.cluster][lane] = d.slot
		a.lock.lanes[d.slot] = heldLane{lane: lane}
		a.added = append(a.added, d.lanePath())
		return
	}
	a.list = append(a.list, diag.Diagnostic{Severity: diag.Error, Code: "no-lane", Path: d.path,
		Summary: fmt.Sprintf("all %d lanes of the cluster are taken, some by gateways that were removed", fabric.MaxLanes),
		Hint:    "hawser allocate --gc frees those of removed gateways"})
}

// lane reads the line of a gateway's lane. Of two lines the lower lane stays.
func (r *lockReader) lane(s slot, key, value *yaml.Node) {
	h := heldLane{pos: r.pos(key)}
	if value.Kind != yaml.ScalarNode || value.Tag != "!!int" || value.Decode(&h.lane) != nil || h.lane < 0 || h.lane >= fabric.MaxLanes {
		r.fail(value, "has %q where a lane from 0 to %d belongs", value.Value, fabric.MaxLanes-1)
		return
	}
	if have, dup := r.lock.lanes[s]; dup {
		keep, drop := have, h
		if drop.lane < keep.lane {
			keep, drop = drop, keep
		}
		r.twice(s.lanePath(), keep.pos, drop.pos, keep.lane != drop.lane)
		h = keep
	}
	r.lock.lanes[s] = h
}
