package round

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestRoutesUntilApplied checks that State.Routes includes the routes that a new projection drops
// until a full round is applied. It does not include routes that a move drops.
func TestRoutesUntilApplied(t *testing.T) {
	t.Parallel()
	route := func(dst string) desired.Route {
		return desired.Route{Table: 7301, Dst: netip.MustParsePrefix(dst), Type: "unicast", Device: "hw-vx0"}
	}
	node := func(routes ...desired.Route) *DesiredNode { return &DesiredNode{State: desired.State{Routes: routes}} }
	gone, moved := route("10.1.0.0/16"), route("10.2.0.0/16")
	s := State{
		last: Projection{Node: node(moved)}, applied: node(gone, moved), routed: projection.Input{Fabric: &fabric.Fabric{}},
	}
	if got := s.Routes().Routes; len(got) != 1 || got[0] != gone {
		t.Errorf("before the round is applied: %v, want %v", got, gone)
	}
	s, _ = Applied(s)
	if got := s.Routes().Routes; len(got) != 0 {
		t.Errorf("after the round is applied: %v, want none", got)
	}
}
