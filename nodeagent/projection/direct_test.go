package projection_test

import (
	"maps"
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// TestDirectSendersAreUnique checks that two nodes with the same reported hardware address use
// VXLAN. A node could report the address of another node to get the replies to its pods.
func TestDirectSendersAreUnique(t *testing.T) {
	t.Parallel()
	node := func(name, mac string) model.DirectNode { return model.DirectNode{Node: name, MAC: mac} }
	const a, b, sameEnd = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "06:01:00:00:00:0a"
	for _, tt := range []struct {
		name  string
		nodes []model.DirectNode
		want  []string
	}{
		{"no report", []model.DirectNode{node("w1", ""), node("w2", "")}, nil},
		{"malformed", []model.DirectNode{node("w1", "02:00")}, nil},
		{"both families", []model.DirectNode{node("w1", a), node("w1", a), node("w2", b)}, []string{a, b}},
		{"address of another node", []model.DirectNode{node("w1", a), node("w2", a), node("w3", b)}, []string{b}},
		{"same last four bytes", []model.DirectNode{node("w1", a), node("w2", sameEnd), node("w3", b)}, []string{b}},
		{"in one family", []model.DirectNode{node("w1", a), node("w2", b), node("w1", a), node("w2", a)}, []string{b}},
		{"three nodes", []model.DirectNode{node("w1", a), node("w2", a), node("w1", a), node("w3", a)}, nil},
	} {
		if have := slices.Sorted(maps.Keys(projection.DirectSenders(tt.nodes))); !slices.Equal(have, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, have, tt.want)
		}
	}
}

// TestDirectGateway checks that a gateway accepts direct packets only of known nodes, each from its
// own hardware address. The rule for test packets follows the rule of TableOut, because exports of
// other clusters may use the same port.
func TestDirectGateway(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/families.txtar")
	in := w.inputs["c/c-a"]
	f := *in.Fabric
	f.Clusters = slices.Clone(f.Clusters)
	for i := range f.Clusters {
		f.Clusters[i].NodeNetwork = fabric.NodeAuto
	}
	in.Fabric = &f
	i := slices.IndexFunc(in.Facts.Nodes, func(n model.Node) bool { return n.Name == "c-w1" })
	worker := model.DirectNode{Node: "c-w1", Addr: in.Facts.Nodes[i].Addrs[0], Device: "eth0", MAC: "02:00:00:00:00:0a"}
	other := model.DirectNode{Node: "unknown", Addr: addr("172.18.99.9"), Device: "eth0", MAC: "02:00:00:00:00:0b"}
	senders := func(nodes ...model.DirectNode) int {
		in.Direct = nodes
		s, _ := projection.Desired(in)
		count, hops := 0, 0
		for _, e := range s.Elements {
			switch e.Set {
			case desired.SetSenders:
				count++
			case desired.SetNodeHops:
				hops++
			}
		}
		tested := slices.ContainsFunc(s.Rules, func(r desired.Rule) bool {
			return r.UDPPort == desired.ProbePort && r.IIF == desired.NodeDevice && r.Priority > desired.RuleOut && r.Priority < desired.RuleTunnel
		})
		if tested != (len(nodes) > 0 && nodes[0].Node == "c-w1") {
			t.Errorf("%v: rule of test packets %t", nodes, tested)
		}
		if known := slices.ContainsFunc(nodes, func(n model.DirectNode) bool { return n.Node == "c-w1" }); known != (hops == 1) {
			t.Errorf("%v: %d next hops", nodes, hops)
		}
		return count
	}
	if n := senders(); n != 0 {
		t.Errorf("%d senders without pairs", n)
	}
	if n := senders(worker, other); n != 1 {
		t.Errorf("%d senders of one known node", n)
	}
	if n := senders(other); n != 0 {
		t.Errorf("%d senders of an unknown node", n)
	}
	stolen := worker
	stolen.Node = "c-a2"
	if n := senders(worker, stolen); n != 0 {
		t.Errorf("%d senders with one address of two nodes", n)
	}
}
