package lockfile

import (
	"slices"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// HeldLane is the lane that the lock holds for a gateway.
type HeldLane struct {
	Lane int
	Pos  diag.Pos
}

// LanePath names a gateway's lane as the lock file does.
func (s Slot) LanePath() string { return s.Path() + ".lane" }

// Lane gives the lane of a gateway; false when the lock holds none.
func (l *Lock) Lane(cluster, gateway string) (int, bool) {
	h, ok := l.Lanes[Slot{Kind: SlotGateway, Cluster: cluster, Name: gateway}]
	return h.Lane, ok
}

// SortedLanes gives the gateways that have a lane, in order.
func (l *Lock) SortedLanes() []Slot {
	slots := make([]Slot, 0, len(l.Lanes))
	for s := range l.Lanes {
		slots = append(slots, s)
	}
	slices.SortFunc(slots, Slot.compare)
	return slots
}

// lane reads the line of a gateway's lane. Of two lines the lower lane stays.
func (r *reader) lane(s Slot, key, value *yaml.Node) {
	h := HeldLane{Pos: r.pos(key)}
	if value.Kind != yaml.ScalarNode || value.Tag != "!!int" || value.Decode(&h.Lane) != nil || h.Lane < 0 || h.Lane >= fabric.MaxLanes {
		r.fail(value, "has %q where a lane from 0 to %d belongs", value.Value, fabric.MaxLanes-1)
		return
	}
	if have, dup := r.lock.Lanes[s]; dup {
		keep, drop := have, h
		if drop.Lane < keep.Lane {
			keep, drop = drop, keep
		}
		r.twice(s.LanePath(), keep.Pos, drop.Pos, keep.Lane != drop.Lane)
		h = keep
	}
	r.lock.Lanes[s] = h
}
