package nodeagent

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/project"
)

// memo keeps the last projection: when nothing that decides it has changed, a
// pass compares the kernel with the very same state.
type memo struct {
	input      project.Input
	node       *node
	problems   []project.Problem
	generation int
}

// source gives the engine the state that this node should have. It is called in
// the engine's goroutine only.
func (a *Agent) source(ctx context.Context) (*node, string, bool) {
	in, ok := a.inputs.now()
	if !ok {
		return nil, "", false
	}
	a.peers.follow(ctx, in)
	input := project.Input{
		Fabric: in.fabric, Digest: in.digest, Keys: in.keys,
		Cluster: a.config.Cluster, Node: a.config.Node,
		Facts: in.facts.Facts,
		Local: a.local(in),
		Paths: a.peers.paths(in.fabric),
		Live:  a.peers.live(),
	}
	m := &a.last
	if m.node == nil || !sameInput(m.input, input) {
		state, problems := project.State(input)
		m.input, m.problems = input, problems
		m.node = &node{State: state, decommission: in.fabric.Decommission}
		m.generation++
		a.peers.publish(project.LiveState(input))
	}
	return m.node, in.digest + "-" + strconv.Itoa(m.generation), true
}

// sameInput compares by identity first, as most inputs are shared and only
// replaced as a whole.
func sameInput(a, b project.Input) bool {
	return a.Fabric == b.Fabric && a.Keys == b.Keys &&
		maps.Equal(a.Paths, b.Paths) &&
		reflect.DeepEqual(a.Local, b.Local) &&
		reflect.DeepEqual(a.Live, b.Live) &&
		reflect.DeepEqual(a.Facts, b.Facts)
}

// local looks at this host. What cannot be seen is left out; project says what
// is missing.
func (a *Agent) local(in current) project.Local {
	local := project.Local{Resolved: a.inputs.resolver.snapshot()}
	self := nodeAddrs(in.facts.Facts.Nodes, a.config.Node)
	mtu, err := kernel.Underlay(self)
	if err != nil {
		a.log.Warn("underlay not found", "node", a.config.Node, "err", err)
	}
	local.UnderlayMTU = mtu
	if own := in.fabric.Cluster(a.config.Cluster); own != nil {
		held, err := kernel.AddressesIn(own.PodCIDRs)
		if err != nil {
			a.log.Warn("host addresses not read", "err", err)
		}
		local.HostSource = onePerFamily(held)
	}
	return local
}

func onePerFamily(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	var has4, has6 bool
	for _, addr := range addrs {
		if addr.Is4() && !has4 || !addr.Is4() && !has6 {
			out = append(out, addr)
		}
		has4, has6 = has4 || addr.Is4(), has6 || !addr.Is4()
	}
	return out
}

// reported takes the outcome of each round.
func (a *Agent) reported(r converge.Report) {
	a.metrics.count(r)
	a.shown.Store(&view{report: r, input: a.last.input, node: a.last.node, problems: a.last.problems})
}

func texts[T interface{ Error() string }](list []T) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = strings.ReplaceAll(item.Error(), "\n", "; ")
	}
	return out
}
