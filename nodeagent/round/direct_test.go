package round

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/direct"
	"hawser.dev/hawser/schema/fabric"
)

// directCase returns a cluster with gateways gw and gw2 and workers w1 and w2, and another cluster.
func directCase() (*fabric.Fabric, model.Facts, model.HostState) {
	prefixes := func(texts ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, t := range texts {
			out = append(out, netip.MustParsePrefix(t))
		}
		return out
	}
	node := func(name, last, pods string) model.Node {
		return model.Node{
			Name: name, Addrs: []netip.Addr{netip.MustParseAddr("172.18.0." + last), netip.MustParseAddr("fd00::" + last)}, PodCIDRs: prefixes(pods),
		}
	}
	f := &fabric.Fabric{Clusters: []fabric.Cluster{
		{
			Name: "g1", NodeNetwork: fabric.NodeAuto, PodCIDRs: prefixes("10.7.0.0/16"),
			Gateways: []fabric.Gateway{{Name: "a", Node: "gw"}, {Name: "b", Node: "gw2"}},
		},
		{Name: "g2", GlobalCIDRs: prefixes("242.2.0.0/16")},
	}}
	facts := model.Facts{Nodes: []model.Node{
		node("gw", "2", "10.7.2.0/24"), node("gw2", "3", "10.7.3.0/24"), node("w1", "4", "10.7.4.0/24"), node("w2", "5", "10.7.5.0/24"),
	}}
	return f, facts, model.HostState{Underlay: []model.UnderlayAddr{
		{Addr: netip.MustParseAddr("172.18.0.4"), Device: "eth0", MAC: "02:00:00:00:00:04", Networks: prefixes("172.18.0.0/16")},
		{Addr: netip.MustParseAddr("fd00::4"), Device: "eth0", MAC: "02:00:00:00:00:04", Networks: prefixes("fd00::/64")},
	}}
}

func TestDirectPairs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		node     string
		change   func(*fabric.Fabric, *model.Facts, *model.HostState)
		pairs    []string
		excluded []string
	}{
		// The other cluster has no IPv6.
		{name: "worker", node: "w1", pairs: []string{"gw 172.18.0.2 from 242.2.255.254", "gw2 172.18.0.3 from 242.2.255.254"}},
		{name: "gateway", node: "gw", pairs: []string{"w1 172.18.0.4 from 10.7.4.254", "w2 172.18.0.5 from 10.7.5.254"}},
		{
			name: "pod prefixes of the cluster", node: "gw", pairs: []string{"w1 172.18.0.4 from 10.7.255.254", "w2 172.18.0.5 from 10.7.5.254"},
			change: func(_ *fabric.Fabric, facts *model.Facts, _ *model.HostState) { facts.Nodes[2].PodCIDRs = nil },
		},
		{
			name: "router", node: "w1", pairs: []string{"gw 172.18.0.2 from 242.2.255.254"}, excluded: []string{"gw2: gw2 is behind a router"},
			change: func(_ *fabric.Fabric, _ *model.Facts, local *model.HostState) {
				local.Underlay[0].Networks = []netip.Prefix{netip.MustParsePrefix("172.18.0.2/32")}
			},
		},
		{
			name: "unsuitable device", node: "w1", excluded: []string{"gw: eth0 has a BPF program", "gw2: eth0 has a BPF program"},
			change: func(_ *fabric.Fabric, _ *model.Facts, local *model.HostState) {
				local.Underlay[0].Unsuitable = "eth0 has a BPF program"
			},
		},
		{
			name: "node without rules", node: "gw", pairs: []string{"w2 172.18.0.5 from 10.7.5.254"},
			excluded: []string{"w1: no agent has reported its rules on w1"},
			change:   func(_ *fabric.Fabric, facts *model.Facts, _ *model.HostState) { facts.Nodes[2].Unprotected = true },
		},
		{name: "tunnel", node: "w1", change: func(f *fabric.Fabric, _ *model.Facts, _ *model.HostState) { f.Clusters[0].NodeNetwork = "" }},
		{name: "unknown underlay", node: "w1", change: func(_ *fabric.Fabric, _ *model.Facts, local *model.HostState) { local.Underlay = nil }},
		{name: "unknown node", node: "w9"},
	} {
		f, facts, local := directCase()
		if tt.node == "gw" {
			local.Underlay[0].Addr = netip.MustParseAddr("172.18.0.2")
		}
		if tt.change != nil {
			tt.change(f, &facts, &local)
		}
		spec, excluded := directPairs(f, facts, local, "g1", tt.node)
		var pairs, others []string
		for _, p := range spec.Pairs {
			pairs = append(pairs, p.Node+" "+p.Remote.String()+" from "+p.Source.String())
		}
		for _, e := range excluded {
			others = append(others, e.Node+": "+e.Reason)
		}
		if d := cmp.Diff(tt.pairs, pairs); d != "" {
			t.Errorf("%s: pairs (-want +got)\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.excluded, others); d != "" {
			t.Errorf("%s: excluded (-want +got)\n%s", tt.name, d)
		}
	}
}

func TestUpdateDirect(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("172.18.0.2")
	nodes := directNodes([]direct.State{{Node: "gw", Remote: addr, Device: "eth0"}}, []model.DirectNode{{Node: "gw2", Reason: "router"}})
	want := []model.DirectNode{
		{Node: "gw2", Reason: "router"},
		{Node: "gw", Addr: addr, Device: "eth0", Reason: "the agent of gw does not test direct packets"},
	}
	compare := cmpopts.EquateComparable(netip.Addr{})
	if d := cmp.Diff(want, nodes, compare); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	// updateDirect ignores a pair whose elements the kernel does not have yet.
	states := []direct.State{
		{Node: "gw", Remote: addr, Device: "eth0", MAC: "02:00:00:00:00:01", Sends: true},
		{Node: "w2", Remote: netip.MustParseAddr("172.18.0.9"), Device: "eth0", Sends: true},
	}
	have := updateDirect(nodes, states)
	if len(have) != 2 || have[0].Active || !have[1].Active || nodes[1].Active {
		t.Errorf("have %+v", have)
	}
	if again := updateDirect(have, states); !sameSlice(have, again) {
		t.Error("a copy without a change")
	}
	if have = updateDirect(have, nil); slices.ContainsFunc(have, func(d model.DirectNode) bool { return d.Active }) {
		t.Errorf("without states: %+v", have)
	}
}

// manyDirect returns the nodes and pair states of a gateway whose pairs are all direct.
func manyDirect(count int) ([]model.DirectNode, []direct.State) {
	var nodes []model.DirectNode
	var states []direct.State
	for i := range count {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		nodes = append(nodes, model.DirectNode{Node: "w" + strconv.Itoa(i), Addr: addr, Device: "eth0", Active: true})
		states = append(states, direct.State{Node: "w" + strconv.Itoa(i), Remote: addr, Device: "eth0", Sends: true})
	}
	return nodes, states
}

func TestDirectCache(t *testing.T) {
	t.Parallel()
	nodes, states := manyDirect(500)
	var c directCache
	if have := c.update(nodes, states); !sameSlice(have, nodes) {
		t.Error("a copy without a change")
	}
	changed := slices.Clone(states)
	changed[7].Sends = false
	have := c.update(nodes, changed)
	if have[7].Active || !have[8].Active || !nodes[7].Active {
		t.Errorf("have %+v", have[7])
	}
	if !sameSlice(have, c.update(nodes, changed)) {
		t.Error("computed again without a change")
	}
}

// BenchmarkUpdateDirect measures an update with one changed pair. The time per pair must not grow
// with the number of pairs.
func BenchmarkUpdateDirect(b *testing.B) {
	for _, count := range []int{5, 50, 500} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			nodes, states := manyDirect(count)
			states[count-1].Sends = false
			for b.Loop() {
				updateDirect(nodes, states)
			}
		})
	}
}

// TestDirectSenders checks that the rules accept no packets from a node whose MAC is unknown.
func TestDirectSenders(t *testing.T) {
	t.Parallel()
	p := Projection{Node: &DesiredNode{}}
	p.Input.Direct = []model.DirectNode{{Node: "w1", MAC: "02:00:00:00:00:01"}, {Node: "w2"}}
	if have := p.DirectSenders(converge.Report{}); len(have) != 1 || !have["02:00:00:00:00:01"] {
		t.Errorf("have %v", have)
	}
	if have := p.DirectSenders(converge.Report{Interrupted: true}); have != nil {
		t.Errorf("after an interrupted round: %v", have)
	}
}
