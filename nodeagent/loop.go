package nodeagent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/cluster/publisher"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/observe/metrics"
	"hawser.dev/hawser/nodeagent/peer"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/round"
)

// loop makes the rounds: it observes, has package round decide, and carries out the
// effects. Its methods but announce and sight are called in the engine's goroutine.
type loop struct {
	config Config
	log    *slog.Logger
	triggers
	*sharedState
	files stateFiles
	drain *control.Drain

	inputs      *input.Inputs
	elector     *election.Elector
	host        *host.Host
	peers       *peer.Peers
	publication *publisher.Publisher // nil without a Kubernetes API
	metrics     *metrics.Metrics

	completedOnce bool            // a round came to its end since the start
	refused       map[string]bool // what was logged of endpoints that clusters announced
}

// triggers wake the engine.
type triggers struct {
	trigger trigger.Trigger // "look again"
	drift   trigger.Trigger // "the kernel's state changed"
	urgent  trigger.Trigger // "a link may have changed"

	election trigger.Trigger // wakes the Elector: "the view of the election changed"
}

func newBells() triggers {
	return triggers{trigger: trigger.New(), drift: trigger.New(), urgent: trigger.New(), election: trigger.New()}
}

// sharedState are what the engine's goroutine leaves for all others to read.
type sharedState struct {
	state             atomic.Pointer[round.State]
	outcome           atomic.Pointer[round.Outcome]
	ownGatewayRemoved atomic.Bool // this node's gateway left the fabric, and is kept for a while
}

func newSnapshots(cluster string, now time.Time) *sharedState {
	s, begin := &sharedState{}, round.NewState(cluster, round.Saved{}, now)
	s.state.Store(&begin)
	s.outcome.Store(&round.Outcome{})
	return s
}

// Outcome gives what the last round came to.
func (s *sharedState) Outcome() round.Outcome { return *s.outcome.Load() }

// State gives what the last step left.
func (s *sharedState) State() round.State { return *s.state.Load() }

// begin gives the state of an agent that starts now.
func (l *loop) begin(now time.Time) round.State {
	saved := l.files.load(l.log)
	saved.TunnelsInUse = host.TunnelsExist()
	return round.NewState(l.config.Cluster, saved, now)
}

// observe looks at everything that a round depends on.
func (l *loop) observe(in input.Current) round.Observed {
	own := in.Fabric.Cluster(l.config.Cluster)
	gateway := own != nil && own.GatewayOn(l.config.Node) != nil || l.ownGatewayRemoved.Load()
	local, ok := l.host.Observe(in.Fabric, in.Facts.Nodes, gateway, l.peers.UsesDriver)
	if !ok {
		l.closeStaleAPIConns()
	}
	l.inputs.ResolveNames(endpoint.Names(in.Fabric, l.config.Cluster, in.Facts))
	local.Resolved = l.inputs.Resolved()
	return round.Observed{
		Cluster: l.config.Cluster, Node: l.config.Node, Stale: l.peers.Stale(),
		Fabric: in.Fabric, Digest: in.Digest, Keys: in.Keys, Facts: in.Facts, Local: local, Peers: l.peers.Observe(),
	}
}

// closeStaleAPIConns leaves connections to the API server that went out from an address which this
// host has no longer: what it is called now must be heard.
func (l *loop) closeStaleAPIConns() {
	_, client := l.inputs.API()
	if client == nil {
		return
	}
	held, err := l.host.Addresses()
	if err != nil {
		return // then it takes longer
	}
	if n := client.CloseStaleConns(func(addr netip.Addr) bool { return slices.Contains(held, addr) }); n > 0 {
		l.log.Info("asking the Kubernetes API anew, as the host's address changed", "connections", n)
	}
}

// desiredState gives the engine the state that this node should have.
func (l *loop) desiredState(context.Context) (*round.DesiredNode, string, bool) {
	in, ok := l.inputs.Current()
	if !ok {
		return nil, "", false
	}
	before := l.State()
	next, do := round.StepUntilStable(before, func() round.Observed { return l.observe(in) }, l.peers.SetSpec, time.Now())
	l.applyStep(next, do)
	l.peers.ApplyRound(do)
	if do.Changed {
		last := next.Last()
		l.peers.SetProjection(last.Input, last.Node)
	}
	if l.ownGatewayRemoved.Swap(do.Leaving) != do.Leaving {
		l.onDrainChange()
	}
	// Endpoints that were announced and do not count are counted when they are new, and each
	// reason is logged once: what clusters say must not fill the log.
	for cluster, reasons := range next.Found.Refused {
		for _, reason := range reasons {
			if slices.Contains(before.Found.Refused[cluster], reason) {
				continue
			}
			l.metrics.Refused(cluster)
			if text := cluster + ": " + reason; !l.refused[text] {
				l.refused[text] = true
				l.log.Warn("announced endpoint refused", "cluster", cluster, "reason", reason)
			}
		}
	}
	if do.SaveLive {
		l.files.heard.MarkDirty()
		l.files.found.MarkDirty()
	}
	if do.Requeue > 0 {
		time.AfterFunc(do.Requeue, l.trigger.Fire)
	}
	return do.Node, do.Digest, true
}

// urgentState gives an urgent pass the routes, when links moved since the last
// projection. All else that a move changes can wait for the whole pass.
func (l *loop) urgentState(context.Context) (*round.DesiredNode, string, bool) {
	in := round.Observed{Cluster: l.config.Cluster, Node: l.config.Node, Peers: l.peers.ObserveLinks()}
	next, do, ok := round.Reroute(l.State(), in, time.Now())
	if next.Last().Node == nil {
		return nil, "", false
	}
	l.applyStep(next, do)
	if !ok {
		return nil, "", false
	}
	return next.Routes(), "", true
}

// applyStep keeps a state, and carries out what whole and urgent rounds have in common.
func (l *loop) applyStep(next round.State, do round.Effects) {
	l.state.Store(&next)
	for _, m := range do.Moves {
		l.log.Info("moved", m.Attrs()...)
		l.metrics.Moved(m)
	}
	l.peers.ApplyStep(do)
}

// onRoutesWritten follows each pass: the flows of this node go where the routes lead now.
func (l *loop) onRoutesWritten() { l.host.RoutesWritten(l.State().RoutedInput()) }

// readyTime is how long after its first pass a gateway may still lack something
// before it is used all the same.
const readyTime = 5 * time.Second

// onReport takes the outcome of each round.
func (l *loop) onReport(r converge.Report) {
	next, live := round.Applied(l.State())
	l.state.Store(&next)
	last := next.Last()
	l.metrics.ObserveReport(r)
	if r.Clean() {
		l.peers.SetAcceptsTransit(host.AcceptsTransit(last.Node))
	}
	switch {
	// After a reboot the other nodes drop this gateway's VXLAN until they have read its report.
	case r.Clean() && last.Input.AcceptedByNodes():
		l.peers.SetReady(true)
	case !r.Interrupted && !l.completedOnce:
		// A pass may take long on a machine that is busy, so it counts from its end.
		l.completedOnce = true
		time.AfterFunc(readyTime, func() { l.peers.SetReady(true) })
	}
	l.peers.Publish(live)
	l.files.paths.MarkDirty()
	l.files.shape.MarkDirty()
	l.peers.SetInstalled(last.InstalledTunnels(r))
	l.onRoutesWritten()
	l.outcome.Store(&round.Outcome{Report: r, Projection: last, Leaving: next.RetiringGateways()})
	l.publication.Trigger()
}

// onDrainChange tells other agents whether this gateway is to be left, and looks anew.
func (l *loop) onDrainChange() {
	l.peers.SetDraining(l.drain.Active() || l.ownGatewayRemoved.Load())
	l.urgent.Fire()
	l.trigger.Fire()
}
