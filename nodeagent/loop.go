package nodeagent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// memo keeps the last projection: when nothing that decides it has changed, a
// pass compares the kernel with the very same state.
type memo struct {
	input      project.Input
	node       *node
	problems   []project.Problem
	generation int
	hurried    bool          // an urgent pass wrote something else since
	routed     project.Input // what the routes were written from last
}

// source gives the engine the state that this node should have. It is called in
// the engine's goroutine only.
func (a *Agent) source(_ context.Context) (*node, string, bool) {
	in, ok := a.inputs.now()
	if !ok {
		return nil, "", false
	}
	now := time.Now()
	a.before = a.shifter.follow(in.fabric, a.former, a.peers.live(), now)
	in.fabric = a.lingering(in.fabric, now)
	in.before = a.before
	a.peers.probe(in)
	w := a.choose(in.fabric, now)
	a.peers.feed(in, w.paths)
	a.sizes.follow(a.peers.probed(), mtusOf(a.last.node), w.links)
	live := a.peers.live()
	input := a.input(in, w, live)
	input.Kept, input.Settled = a.heard.follow(len(in.fabric.Clusters)-1, live, now)
	input.Cables = a.cabling.follow(in.fabric, in.keys, a.peers.probed())
	input.Fabric, input.Decided = a.exports.follow(input)
	input.Local.Ways = a.endpoints.follow(input)
	m := &a.last
	if m.node == nil || m.hurried || !sameInput(m.input, input) {
		state, problems := project.State(input)
		m.input, m.problems, m.hurried = input, problems, false
		m.routed = input
		m.node = &node{State: state, decommission: in.fabric.Decommission}
		m.generation++
		a.endpoints.equip(input, m.node)
		if live, ok := a.announcer.begin(project.LiveState(input)); ok {
			a.peers.publish(live)
		}
	}
	return m.node, in.digest + "-" + strconv.Itoa(m.generation), true
}

func (a *Agent) input(in current, w ways, live map[string]project.Live) project.Input {
	return project.Input{
		Fabric: in.fabric, Digest: in.digest, Keys: in.keys,
		Cluster: a.config.Cluster, Node: a.config.Node,
		Facts: in.facts.Facts,
		Local: a.local(in),
		Paths: w.paths, Transit: w.transit, Before: in.before,
		Live: live, Memo: &a.slots,
	}
}

// hurried gives an urgent pass the routes, when links moved since the last
// projection. All else that a move changes can wait for the whole pass.
func (a *Agent) hurried(context.Context) (*node, string, bool) {
	m := &a.last
	if m.node == nil {
		return nil, "", false
	}
	input := m.input
	w := a.choose(input.Fabric, time.Now())
	if !m.hurried && maps.Equal(w.paths, input.Paths) && maps.Equal(w.transit, input.Transit) {
		return nil, "", false
	}
	m.hurried = true
	input.Paths, input.Transit = w.paths, w.transit
	m.routed = input
	return &node{State: desired.State{Routes: project.Routes(input)}}, "", true
}

// routed follows each pass: the flows of this node go where the routes lead now.
func (a *Agent) routed() {
	if a.last.routed.Fabric != nil {
		a.mover.follow(a.last.routed)
	}
}

// choose takes the best link to each other cluster, and tells the prober.
func (a *Agent) choose(f *fabric.Fabric, now time.Time) ways {
	v := sight{
		fabric: f, cluster: a.config.Cluster, gateway: a.gatewayIn(f), before: a.before,
		snapshot: a.peers.snapshot().Leave(a.lingerer.leaving), narrow: a.sizes.found(),
	}
	w := a.choice.look(f, v, a.peers.live(), now)
	a.former = w.former
	a.peers.use(w.links)
	shape := ""
	if !w.former {
		shape = project.ShapeDigest(f.Shape)
	}
	a.peers.tell(shape, w.passing)
	return limit(v.gateway, w, v.narrow)
}

// gatewayIn names this node's gateway; empty = it is none.
func (a *Agent) gatewayIn(f *fabric.Fabric) string {
	if own := f.Cluster(a.config.Cluster); own != nil {
		if g := own.GatewayOn(a.config.Node); g != nil {
			return g.Name
		}
	}
	return ""
}

// lingering gives the fabric together with gateways that left it and are still used.
func (a *Agent) lingering(next *fabric.Fabric, now time.Time) *fabric.Fabric {
	snapshot := a.peers.snapshot()
	f, leaving := a.lingerer.follow(next, func(p health.Peer) bool {
		return len(a.choice.users(a.lingerer.merged, snapshot, p)) > 0
	}, now)
	self := slices.ContainsFunc(leaving, func(p health.Peer) bool {
		own := f.Cluster(p.Cluster).GatewayOn(a.config.Node)
		return p.Cluster == a.config.Cluster && own != nil && own.Name == p.Gateway
	})
	if a.leaving.Swap(self) != self {
		a.announce()
	}
	if len(leaving) > 0 || a.before != nil {
		time.AfterFunc(lingerLook, a.look)
	}
	return f
}

// moved counts a move of the link to another cluster.
func (a *Agent) moved(m status.Move, _ project.Path) {
	a.metrics.moves.WithLabelValues(m.Cluster, m.Kind).Inc()
}

// readyTime is how long after its first pass a gateway may still lack something
// before it is used all the same.
const readyTime = 5 * time.Second

// tunnelsStand reports whether an agent before this one left tunnels, over which
// the traffic goes on: then this gateway is as ready as it was, and a restart
// moves nothing.
func tunnelsStand() bool {
	links, err := net.Interfaces()
	return err == nil && slices.ContainsFunc(links, func(l net.Interface) bool {
		return desired.IsCable(l.Name)
	})
}

// takes reports whether the node has what takes packets that clusters passed on.
func takes(n *node) bool {
	return n != nil && slices.ContainsFunc(n.Links, func(l desired.Link) bool {
		return strings.HasPrefix(l.Name, desired.PassPrefix)
	})
}

// sameInput compares by identity first, as most inputs are shared and only
// replaced as a whole.
func sameInput(a, b project.Input) bool {
	return a.Fabric == b.Fabric && a.Keys == b.Keys &&
		a.Before == b.Before && maps.Equal(a.Paths, b.Paths) && maps.Equal(a.Transit, b.Transit) &&
		reflect.DeepEqual(a.Local, b.Local) &&
		reflect.DeepEqual(a.Cables, b.Cables) &&
		reflect.DeepEqual(a.Live, b.Live) &&
		a.Settled == b.Settled && reflect.DeepEqual(a.Kept, b.Kept) &&
		reflect.DeepEqual(a.Facts, b.Facts)
}

// local looks at this host. What cannot be seen is left out; project says what
// is missing.
func (a *Agent) local(in current) project.Local {
	local := project.Local{Resolved: a.inputs.resolver.snapshot(), NoIPv6: kernel.NoIPv6(), KernelESP: a.kernelESP(in.fabric), NoConnLimit: a.noConnLimit(in.fabric)}
	self := nodeAddrs(in.facts.Facts.Nodes, a.config.Node)
	mtu, err := kernel.Underlay(self)
	if err != nil {
		a.log.Warn("underlay not found", "node", a.config.Node, "err", err)
		a.askAnew()
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

// askAnew leaves connections to the API server that went out from an address which this
// host has no longer: what it is called now must be heard.
func (a *Agent) askAnew() {
	if a.inputs.client == nil {
		return
	}
	held, err := kernel.AddressesIn([]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
	if err != nil {
		return // then it takes longer
	}
	if n := a.inputs.client.Leave(func(addr netip.Addr) bool { return slices.Contains(held, addr) }); n > 0 {
		a.log.Info("asking the Kubernetes API anew, as the host's address changed", "connections", n)
	}
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
	switch {
	case r.Clean():
		a.peers.prober.SetReady(true)
		a.peers.prober.SetTakes(takes(a.last.node))
	case !r.Interrupted && !a.passed:
		// A pass may take long on a machine that is busy, so it counts from its end.
		a.passed = true
		time.AfterFunc(readyTime, func() { a.peers.prober.SetReady(true) })
	}
	if live, ok := a.announcer.passed(); ok {
		a.peers.publish(live)
	}
	a.saver.wake.Ring()
	a.shapes.wake.Ring()
	a.cabling.stand(r, a.last.input, a.last.node)
	a.routed()
	a.shown.Store(&view{
		report: r, input: a.last.input, node: a.last.node, problems: a.last.problems, leaving: a.lingerer.leaving,
	})
	if a.published != nil {
		a.published.wake.Ring()
	}
}

func texts[T interface{ Error() string }](list []T) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = strings.ReplaceAll(item.Error(), "\n", "; ")
	}
	return out
}
