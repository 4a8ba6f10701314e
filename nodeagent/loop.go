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

// loop runs the rounds: it observes, calls package round to decide, and applies the effects. Its
// methods except onDrainChange and agentSnapshot run in the engine's goroutine.
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

	completedOnce bool            // a round completed since the start
	refused       map[string]bool // logged reasons why announced endpoints were refused
}

// triggers wake the engine.
type triggers struct {
	trigger trigger.Trigger // run a round
	drift   trigger.Trigger // the kernel's state changed
	urgent  trigger.Trigger // a link may have changed

	election trigger.Trigger // wakes the Elector: the view of the election changed
	names    trigger.Trigger // wakes the DNS server: its addresses may have changed
}

func newTriggers() triggers {
	return triggers{trigger: trigger.New(), drift: trigger.New(), urgent: trigger.New(), election: trigger.New(), names: trigger.New()}
}

// sharedState is the state that the engine's goroutine publishes to other goroutines.
type sharedState struct {
	state              atomic.Pointer[round.State]
	outcome            atomic.Pointer[round.Outcome]
	ownGatewayRetiring atomic.Bool // this node's gateway left the fabric, and is retiring
}

func newSharedState(cluster string, now time.Time) *sharedState {
	s, begin := &sharedState{}, round.NewState(cluster, round.Saved{}, now)
	s.state.Store(&begin)
	s.outcome.Store(&round.Outcome{})
	return s
}

// Outcome returns the outcome of the last round.
func (s *sharedState) Outcome() round.Outcome { return *s.outcome.Load() }

// State returns the state after the last step.
func (s *sharedState) State() round.State { return *s.state.Load() }

// restore returns the initial state of an agent, from the files of the previous agent.
func (l *loop) restore(now time.Time) round.State {
	saved := l.files.load(l.log)
	saved.TunnelsInUse = host.TunnelsExist()
	return round.NewState(l.config.Cluster, saved, now)
}

// observe reads the observed state of a round.
func (l *loop) observe(in input.Current) round.Observed {
	own := in.Fabric.Cluster(l.config.Cluster)
	gateway := own != nil && own.GatewayOn(l.config.Node) != nil || l.ownGatewayRetiring.Load()
	local, ok := l.host.Observe(in.Fabric, in.Facts.Nodes, gateway, l.peers.UsesDriver)
	if !ok {
		l.closeStaleAPIConns()
	}
	l.inputs.ResolveNames(endpoint.HostNames(in.Fabric, l.config.Cluster, in.Facts))
	local.Resolved = l.inputs.Resolved()
	return round.Observed{
		Cluster: l.config.Cluster, Node: l.config.Node, StaleAfter: l.peers.Stale(),
		Fabric: in.Fabric, Digest: in.Digest, Keys: in.Keys, Facts: in.Facts, Local: local, Peers: l.peers.Observe(),
	}
}

// closeStaleAPIConns closes API connections whose local address this host no longer has.
// Nothing arrives on them, and the watch must report the node's new address soon.
func (l *loop) closeStaleAPIConns() {
	_, client := l.inputs.API()
	if client == nil {
		return
	}
	held, err := l.host.Addresses()
	if err != nil {
		return // the connections then close by their own timeouts
	}
	if n := client.CloseStaleConns(func(addr netip.Addr) bool { return slices.Contains(held, addr) }); n > 0 {
		l.log.Info("closed Kubernetes API connections of a removed host address", "connections", n)
	}
}

// desiredState returns the desired state of this node for the engine.
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
	if l.ownGatewayRetiring.Swap(do.Retiring) != do.Retiring {
		l.onDrainChange()
	}
	// Each refused endpoint is counted when it is new, and each reason is logged once: other
	// clusters' announcements must not fill the log.
	for cluster, reasons := range next.Endpoints.Refused {
		for _, reason := range reasons {
			if slices.Contains(before.Endpoints.Refused[cluster], reason) {
				continue
			}
			l.metrics.Refused(cluster)
			if text := cluster + ": " + reason; !l.refused[text] {
				l.refused[text] = true
				l.log.Warn("announced endpoint refused", "cluster", cluster, "reason", reason)
			}
		}
	}
	if do.SaveClusterStates {
		l.files.remoteExports.MarkDirty()
		l.files.discovered.MarkDirty()
	}
	return do.Node, do.Digest, true
}

// urgentState returns the routes for an urgent pass, if link choices changed since the last
// projection. Everything else can wait for the round.
func (l *loop) urgentState(context.Context) (*round.DesiredNode, string, bool) {
	in := round.Observed{Cluster: l.config.Cluster, Node: l.config.Node, Peers: l.peers.ObserveLinks()}
	next, do, ok := round.Reroute(l.State(), in, time.Now())
	if next.Last().Node == nil {
		return nil, "", false
	}
	l.applyStep(next, do)
	if !ok {
		l.publication.Trigger() // its order of writers depends on the links, and no round follows
		return nil, "", false
	}
	return next.Routes(), "", true
}

// applyStep stores a state, and applies the effects that rounds and urgent passes share.
func (l *loop) applyStep(next round.State, do round.Effects) {
	l.state.Store(&next)
	for _, m := range do.Moves {
		l.log.Info("moved", m.Attrs()...)
		l.metrics.Moved(m)
	}
	l.peers.ApplyStep(do)
	if do.Requeue > 0 {
		time.AfterFunc(do.Requeue, l.trigger.Fire)
	}
}

// onRoutesWritten moves the flows of this node to the latest routes.
func (l *loop) onRoutesWritten() { l.host.RoutesWritten(l.State().RoutedInput()) }

// readyTime is the time after its first round at which a gateway becomes ready even with failed
// or blocked objects.
const readyTime = 5 * time.Second

// onReport handles the report of each round.
func (l *loop) onReport(r converge.Report) {
	next, exports := round.Applied(l.State())
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
		// A round may be slow on a busy machine, so the time counts from its end.
		l.completedOnce = true
		time.AfterFunc(readyTime, func() { l.peers.SetReady(true) })
	}
	l.peers.Publish(exports)
	l.files.paths.MarkDirty()
	l.files.shape.MarkDirty()
	l.peers.SetInstalled(last.InstalledTunnels(r))
	l.peers.SetDirectSenders(last.DirectSenders(r))
	l.onRoutesWritten()
	l.outcome.Store(&round.Outcome{Report: r, Projection: last, Retiring: next.RetiringGateways()})
	l.publication.Trigger()
}

// onDrainChange announces a change of the drain to other agents, and triggers a round.
func (l *loop) onDrainChange() {
	l.peers.SetDraining(l.drain.Active() || l.ownGatewayRetiring.Load())
	l.urgent.Fire()
	l.trigger.Fire()
}
