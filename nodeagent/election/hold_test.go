package election

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func edge() map[string]string { return map[string]string{"role": "edge"} }

// see gives what node a of a cluster with nodes a and b, both fit, sees of gateway edge-1.
func see(l Lease, change ...func(*View)) View {
	l.Gateway = "edge-1"
	v := View{Node: "a", Gateways: []Gateway{{"edge-1", edge()}},
		Nodes:  []model.Node{{Name: "a", Labels: edge()}, {Name: "b", Labels: edge()}},
		Leases: map[string]Lease{"edge-1": l}}
	for _, do := range change {
		do(&v)
	}
	return v
}

// holding gives the state of a node that took the gateway at start.
func holding() (State, Lease) {
	l := Lease{Gateway: "edge-1", Holder: "a", Turn: 1, Renewed: start, Version: "1"}
	s, _, _ := State{}.Look(see(l), start)
	return s.Wrote(l, start), l
}

// TestHold: what a node writes, and whether it is the gateway, in each situation.
func TestHold(t *testing.T) {
	t.Parallel()
	away := func(node int, why string) func(*View) { return func(v *View) { v.Nodes[node].Away = why } }
	held := Lease{Holder: "a", Turn: 1, Renewed: start, Version: "1"}
	others := Lease{Holder: "b", Turn: 1, Renewed: start, Version: "1"}
	released := Lease{Turn: 3, Renewed: start, Released: true, Version: "9"}
	tests := []struct {
		name  string
		holds bool // at start
		view  View
		after time.Duration // since it was seen first, or since start
		write string        // holder that is written; "nobody", or empty for no write
		turn  int
		keeps bool
	}{
		{name: "one that was never held is not taken before it was looked at", view: see(Lease{Version: "1"}), after: TakeAfter - time.Second},
		{name: "one that was never held", view: see(Lease{Version: "1"}), after: TakeAfter + stagger, write: "a", turn: 1},
		{name: "one that was given back", view: see(released), after: stagger, write: "a", turn: 4},
		{name: "one whose holder was taken out by hand", view: see(Lease{Turn: 3, Renewed: start, Version: "9"}), after: time.Second},
		{name: "one whose holder lives", view: see(others), after: TakeAfter - time.Millisecond},
		{name: "one whose holder is gone", view: see(others), after: TakeAfter + stagger, write: "a", turn: 2},
		{name: "its own after a restart", view: see(held), after: 0, write: "a", turn: 1},
		{name: "not by a node that is not ready", view: see(others, away(0, "it is not ready")), after: time.Minute},
		{name: "not by a node that is cordoned", view: see(released, away(0, "it is cordoned")), after: time.Minute},
		{name: "not by a node without the label", view: see(released, func(v *View) { v.Nodes[0].Labels = nil }), after: time.Minute},
		{name: "not by a node that is deleted", view: see(released, func(v *View) { v.Nodes = v.Nodes[1:] }), after: time.Minute},
		{name: "not by a node that is drained", view: see(released, func(v *View) { v.Drained = true }), after: time.Minute},
		{name: "not by a node that is a gateway by name", view: see(released, func(v *View) { v.Named = []string{"a"} }), after: time.Minute},
		{name: "not by an agent that ends", view: see(released, func(v *View) { v.Leaving = true }), after: time.Minute},
		{name: "not without a Lease", view: see(released, func(v *View) { v.Leases = nil }), after: time.Minute},
		{name: "renews", holds: true, view: see(held), after: RenewEvery, write: "a", turn: 1, keeps: true},
		{name: "rests between renewals", holds: true, view: see(held), after: RenewEvery - time.Millisecond, keeps: true},
		{name: "tries until it must stop", holds: true, view: see(held), after: StopAfter - time.Millisecond, write: "a", turn: 1, keeps: true},
		{name: "stops in time, and begins anew where nobody else has it", holds: true, view: see(held), after: StopAfter, write: "a", turn: 1},
		{name: "stops when another one has it", holds: true, view: see(Lease{Holder: "b", Turn: 2, Version: "7"}), after: time.Second},
		{name: "an older look says nothing", holds: true, view: see(Lease{Holder: "b", Turn: 0, Version: "0"}), after: time.Second, keeps: true},
		{name: "is given back when it is cordoned", holds: true, view: see(held, away(0, "it is cordoned")), after: time.Second, write: "nobody", turn: 1},
		{name: "is kept when it is cordoned and no other node is fit", holds: true, view: see(held, away(0, "it is cordoned"), away(1, "it is not ready")),
			after: time.Second, keeps: true},
		{name: "is given back when the agent ends", holds: true, view: see(held, func(v *View) { v.Leaving = true }), after: time.Second, write: "nobody", turn: 1},
		{name: "is kept when the agent ends and nobody else can have it", holds: true,
			view: see(held, func(v *View) { v.Leaving, v.Nodes = true, v.Nodes[:1] }), after: time.Second, keeps: true},
		{name: "goes on for a while when it left the topology", holds: true, view: see(held, func(v *View) { v.Gateways = nil }), after: RenewEvery,
			write: "a", turn: 1, keeps: true},
		{name: "is given back when it left the topology and the agent ends", holds: true,
			view: see(held, func(v *View) { v.Gateways, v.Leaving = nil, true }), after: time.Second, write: "nobody", turn: 1},
		{name: "is given back when all is to go", holds: true, view: see(held, func(v *View) { v.Gateways, v.Over = nil, true }),
			after: time.Second, write: "nobody", turn: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s State
			if test.holds {
				s, _ = holding()
			}
			var write *Write
			s, write, _ = s.Look(test.view, start)
			if test.after > 0 && write == nil {
				s, write, _ = s.Look(test.view, start.Add(test.after))
			}
			got, turn := "", 0
			if write != nil {
				got, turn = write.Lease.Holder, write.Lease.Turn
				if got == "" && write.Lease.Released {
					got = "nobody"
				}
			}
			if got != test.write || turn != test.turn {
				t.Errorf("writes %q of turn %d, want %q of turn %d", got, turn, test.write, test.turn)
			}
			if own, _ := s.Holds(start.Add(test.after)); (own != "") != test.keeps {
				t.Errorf("holds %q, want that it holds one to be %t", own, test.keeps)
			}
		})
	}
}

// TestLeftTopology: a gateway that left the topology is given back after a while.
func TestLeftTopology(t *testing.T) {
	t.Parallel()
	s, l := holding()
	v := see(l)
	v.Gateways = nil
	for now := start; ; now = now.Add(RenewEvery) {
		var write *Write
		if s, write, _ = s.Look(v, now); write == nil {
			continue
		}
		if write.Lease.Holder == "" {
			if took := now.Sub(start); took < removeAfter || took > removeAfter+2*RenewEvery {
				t.Errorf("given back after %s, want %s", took, removeAfter)
			}
			return
		}
		if s = s.Wrote(write.Lease, now); now.Sub(start) > time.Minute {
			t.Fatal("never given back")
		}
	}
}

// TestOneEach: a node holds one gateway, and gateways are shared out.
func TestOneEach(t *testing.T) {
	t.Parallel()
	s, l := holding()
	v := see(l)
	v.Gateways = append(v.Gateways, Gateway{"edge-2", edge()})
	v.Leases["edge-2"] = Lease{Gateway: "edge-2", Renewed: start, Released: true}
	if _, write, _ := s.Look(v, start.Add(time.Second)); write != nil {
		t.Errorf("a node that is edge-1 writes %+v", write.Lease)
	}
}

// TestConflict: what a node does when its write is refused.
func TestConflict(t *testing.T) {
	t.Parallel()
	s, l := holding()
	l.Version = "2" // somebody changed a label
	now := start.Add(RenewEvery)
	if own, _ := s.Refused("a", &l, now).Holds(now); own == "" {
		t.Error("gave up a gateway whose Lease it has")
	}
	if _, write, _ := s.Refused("a", &l, now).Look(see(l), now); write == nil || write.Lease.Version != "2" {
		t.Errorf("writes %+v, want the newer version at once", write)
	}
	l.Holder = "b"
	if own, _ := s.Refused("a", &l, now).Holds(now); own != "" {
		t.Error("holds a gateway that another node has")
	}
	if _, write, _ := s.Refused("a", nil, now).Look(see(l), now); write != nil {
		t.Errorf("writes %+v without a pause", write)
	}
}

// TestPlace: the fabric has the holders of one cluster, and the one that was read has not.
func TestPlace(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "c", Gateways: []fabric.Gateway{{Name: "edge-1", NodeSelector: edge()}, {Name: "gw", Node: "n"}}},
		{Name: "d", Gateways: []fabric.Gateway{{Name: "edge-1", NodeSelector: edge()}}},
	}}
	placed := Place(f, "c", map[string]string{"edge-1": "a", "gw": "other"})
	var nodes []string
	for _, of := range []*fabric.Fabric{placed, f} {
		for _, c := range of.Clusters {
			for _, g := range c.Gateways {
				nodes = append(nodes, g.Node)
			}
		}
	}
	if diff := cmp.Diff([]string{"a", "n", "", "", "n", ""}, nodes); diff != "" {
		t.Errorf("nodes of the gateways (-want +got):\n%s", diff)
	}
	if placed.Cluster("c").GatewayOn("a") == nil || f.Cluster("c").GatewayOn("") != nil {
		t.Error("GatewayOn does not find the holder, or finds nobody's gateway")
	}
	if Place(f, "e", nil) != f {
		t.Error("a fabric without such gateways is another one")
	}
}
