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

// view returns the view of node a in a cluster with nodes a and b, which both match gateway edge-1.
func view(l Lease, change ...func(*ClusterView)) ClusterView {
	l.Gateway = "edge-1"
	v := ClusterView{Node: "a", Gateways: []Gateway{{"edge-1", edge()}},
		Nodes:  []model.Node{{Name: "a", Labels: edge()}, {Name: "b", Labels: edge()}},
		Leases: map[string]Lease{"edge-1": l}}
	for _, do := range change {
		do(&v)
	}
	return v
}

// holding returns the state of a node that acquired the gateway at start.
func holding() (State, Lease) {
	l := Lease{Gateway: "edge-1", Holder: "a", Transitions: 1, Renewed: start, Version: "1"}
	s, _, _ := State{}.Step(view(l), start)
	return s.WriteSucceeded(l, start), l
}

// TestStep checks which Lease a node writes, and whether the node is the gateway, in each
// situation.
func TestStep(t *testing.T) {
	t.Parallel()
	away := func(node int, why string) func(*ClusterView) {
		return func(v *ClusterView) { v.Nodes[node].UnavailableReason = why }
	}
	held := Lease{Holder: "a", Transitions: 1, Renewed: start, Version: "1"}
	others := Lease{Holder: "b", Transitions: 1, Renewed: start, Version: "1"}
	released := Lease{Transitions: 3, Renewed: start, Released: true, Version: "9"}
	tests := []struct {
		name       string
		holds      bool // at start
		view       ClusterView
		after      time.Duration // time of the second step, since start
		write      string        // written holder; "none" for a release, empty for no write
		transition int
		keeps      bool
	}{
		{name: "never held, not yet observed for long enough", view: view(Lease{Version: "1"}), after: LeaseDuration - time.Second},
		{name: "never held", view: view(Lease{Version: "1"}), after: LeaseDuration + acquireStagger, write: "a", transition: 1},
		{name: "released", view: view(released), after: acquireStagger, write: "a", transition: 4},
		{name: "holder removed by hand", view: view(Lease{Transitions: 3, Renewed: start, Version: "9"}), after: time.Second},
		{name: "holder renews", view: view(others), after: LeaseDuration - time.Millisecond},
		{name: "holder is gone", view: view(others), after: LeaseDuration + acquireStagger, write: "a", transition: 2},
		{name: "own Lease after a restart", view: view(held), after: 0, write: "a", transition: 1},
		{name: "this node is not ready", view: view(others, away(0, "it is not ready")), after: time.Minute},
		{name: "this node is cordoned", view: view(released, away(0, "it is cordoned")), after: time.Minute},
		{name: "this node lacks the label", view: view(released, func(v *ClusterView) { v.Nodes[0].Labels = nil }), after: time.Minute},
		{name: "this node is deleted", view: view(released, func(v *ClusterView) { v.Nodes = v.Nodes[1:] }), after: time.Minute},
		{name: "this node is drained", view: view(released, func(v *ClusterView) { v.Drained = true }), after: time.Minute},
		{name: "this node is a gateway by name", view: view(released, func(v *ClusterView) { v.NamedNodes = []string{"a"} }), after: time.Minute},
		{name: "the agent stops", view: view(released, func(v *ClusterView) { v.Stopping = true }), after: time.Minute},
		{name: "no Lease", view: view(released, func(v *ClusterView) { v.Leases = nil }), after: time.Minute},
		{name: "renews", holds: true, view: view(held), after: RenewInterval, write: "a", transition: 1, keeps: true},
		{name: "waits between renewals", holds: true, view: view(held), after: RenewInterval - time.Millisecond, keeps: true},
		{name: "retries until the deadline", holds: true, view: view(held), after: RenewDeadline - time.Millisecond, write: "a", transition: 1, keeps: true},
		{name: "stops at the deadline and acquires again if the Lease is unchanged", holds: true, view: view(held), after: RenewDeadline, write: "a", transition: 1},
		{name: "stops when another node holds it", holds: true, view: view(Lease{Holder: "b", Transitions: 2, Version: "7"}), after: time.Second},
		{name: "an older Lease changes nothing", holds: true, view: view(Lease{Holder: "b", Transitions: 0, Version: "0"}), after: time.Second, keeps: true},
		{name: "released when cordoned", holds: true, view: view(held, away(0, "it is cordoned")), after: time.Second, write: "none", transition: 1},
		{name: "kept when cordoned without a successor", holds: true, view: view(held, away(0, "it is cordoned"), away(1, "it is not ready")),
			after: time.Second, keeps: true},
		{name: "released when the agent stops", holds: true, view: view(held, func(v *ClusterView) { v.Stopping = true }), after: time.Second, write: "none", transition: 1},
		{name: "kept when the agent stops without a successor", holds: true,
			view: view(held, func(v *ClusterView) { v.Stopping, v.Nodes = true, v.Nodes[:1] }), after: time.Second, keeps: true},
		{name: "renewed for a while after it left the topology", holds: true, view: view(held, func(v *ClusterView) { v.Gateways = nil }), after: RenewInterval,
			write: "a", transition: 1, keeps: true},
		{name: "released when it left the topology and the agent stops", holds: true,
			view: view(held, func(v *ClusterView) { v.Gateways, v.Stopping = nil, true }), after: time.Second, write: "none", transition: 1},
		{name: "released at decommission", holds: true, view: view(held, func(v *ClusterView) { v.Gateways, v.Decommission = nil, true }),
			after: time.Second, write: "none", transition: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s State
			if test.holds {
				s, _ = holding()
			}
			var write *Lease
			s, write, _ = s.Step(test.view, start)
			if test.after > 0 && write == nil {
				s, write, _ = s.Step(test.view, start.Add(test.after))
			}
			got, transition := "", 0
			if write != nil {
				got, transition = write.Holder, write.Transitions
				if got == "" && write.Released {
					got = "none"
				}
			}
			if got != test.write || transition != test.transition {
				t.Errorf("writes holder %q with transition %d, want %q with %d", got, transition, test.write, test.transition)
			}
			if own, _ := s.Held(start.Add(test.after)); (own != "") != test.keeps {
				t.Errorf("holds %q, want a gateway: %t", own, test.keeps)
			}
		})
	}
}

// TestLeftTopology checks that a node releases a gateway removedGrace after its removal from the
// topology.
func TestLeftTopology(t *testing.T) {
	t.Parallel()
	s, l := holding()
	v := view(l)
	v.Gateways = nil
	for now := start; ; now = now.Add(RenewInterval) {
		var write *Lease
		if s, write, _ = s.Step(v, now); write == nil {
			continue
		}
		if write.Holder == "" {
			if took := now.Sub(start); took < removedGrace || took > removedGrace+2*RenewInterval {
				t.Errorf("released after %s, want %s", took, removedGrace)
			}
			return
		}
		if s = s.WriteSucceeded(*write, now); now.Sub(start) > time.Minute {
			t.Fatal("never released")
		}
	}
}

// TestOneEach checks that a node that holds a gateway acquires no other.
func TestOneEach(t *testing.T) {
	t.Parallel()
	s, l := holding()
	v := view(l)
	v.Gateways = append(v.Gateways, Gateway{"edge-2", edge()})
	v.Leases["edge-2"] = Lease{Gateway: "edge-2", Renewed: start, Released: true}
	if _, write, _ := s.Step(v, start.Add(time.Second)); write != nil {
		t.Errorf("a node that is edge-1 writes %+v", *write)
	}
}

// TestConflict checks the state of a node after the store refused its write.
func TestConflict(t *testing.T) {
	t.Parallel()
	s, l := holding()
	l.Version = "2" // a label changed
	now := start.Add(RenewInterval)
	if own, _ := s.WriteFailed("a", &l, now).Held(now); own == "" {
		t.Error("lost a gateway whose Lease names it")
	}
	if _, write, _ := s.WriteFailed("a", &l, now).Step(view(l), now); write == nil || write.Version != "2" {
		t.Errorf("writes %+v, want the newer version without a wait", write)
	}
	l.Holder = "b"
	if own, _ := s.WriteFailed("a", &l, now).Held(now); own != "" {
		t.Error("holds a gateway that another node holds")
	}
	if _, write, _ := s.WriteFailed("a", nil, now).Step(view(l), now); write != nil {
		t.Errorf("writes %+v without a wait", write)
	}
}

// TestWithHolders checks that the copy has the holders of one cluster, and that the original does
// not change.
func TestWithHolders(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{Name: "c", Gateways: []fabric.Gateway{{Name: "edge-1", NodeSelector: edge()}, {Name: "gw", Node: "n"}}},
		{Name: "d", Gateways: []fabric.Gateway{{Name: "edge-1", NodeSelector: edge()}}},
	}}
	placed := WithHolders(f, "c", map[string]string{"edge-1": "a", "gw": "other"})
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
		t.Error("GatewayOn misses the holder, or returns a gateway without a node")
	}
	if WithHolders(f, "e", nil) != f {
		t.Error("a fabric without gateways selected by labels was copied")
	}
}
