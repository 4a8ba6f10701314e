package nodeagent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/control"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/election"
	"hawser.dev/hawser/nodeagent/found"
	"hawser.dev/hawser/nodeagent/host"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/metrics"
	"hawser.dev/hawser/nodeagent/peers"
	"hawser.dev/hawser/nodeagent/publication"
	"hawser.dev/hawser/nodeagent/round"
)

// loop makes the rounds: it observes, has package round decide, and carries out the
// effects. Its methods but announce and sight are called in the engine's goroutine.
type loop struct {
	config Config
	log    *slog.Logger
	bells
	*snapshots
	files stateFiles
	drain *control.Drain

	inputs      *input.Inputs
	elector     *election.Elector
	host        *host.Host
	peers       *peers.Peers
	publication *publication.Publication // nil without a Kubernetes API
	metrics     *metrics.Metrics

	ended   bool            // a round came to its end since the start
	refused map[string]bool // what was logged of endpoints that clusters announced
}

// bells wake the engine.
type bells struct {
	trigger bell.Bell // "look again"
	drift   bell.Bell // "the kernel's state changed"
	urgent  bell.Bell // "a link may have changed"

	election bell.Bell // wakes the Elector: "the view of the election changed"
}

func newBells() bells {
	return bells{trigger: bell.New(), drift: bell.New(), urgent: bell.New(), election: bell.New()}
}

// snapshots are what the engine's goroutine leaves for all others to read.
type snapshots struct {
	state   atomic.Pointer[round.State]
	outcome atomic.Pointer[round.Outcome]
	leaving atomic.Bool // this node's gateway left the fabric, and is kept for a while
}

func newSnapshots(cluster string, now time.Time) *snapshots {
	s, begin := &snapshots{}, round.Begin(cluster, round.Kept{}, now)
	s.state.Store(&begin)
	s.outcome.Store(&round.Outcome{})
	return s
}

// Outcome gives what the last round came to.
func (s *snapshots) Outcome() round.Outcome { return *s.outcome.Load() }

// State gives what the last step left.
func (s *snapshots) State() round.State { return *s.state.Load() }

// begin gives the state of an agent that starts now.
func (l *loop) begin(now time.Time) round.State {
	saved := l.files.load(l.log)
	saved.Carries = host.TunnelsStand()
	return round.Begin(l.config.Cluster, saved, now)
}

// observe looks at everything that a round depends on.
func (l *loop) observe(in input.Current) round.Observed {
	own := in.Fabric.Cluster(l.config.Cluster)
	gateway := own != nil && own.GatewayOn(l.config.Node) != nil || l.leaving.Load()
	local, ok := l.host.Observe(in.Fabric, in.Facts.Nodes, gateway, l.peers.Holds)
	if !ok {
		l.askAnew()
	}
	if own != nil {
		l.inputs.Also(found.Names(own, in.Facts))
	}
	local.Resolved = l.inputs.Resolved()
	return round.Observed{
		Cluster: l.config.Cluster, Node: l.config.Node, Stale: l.peers.Stale(),
		Fabric: in.Fabric, Digest: in.Digest, Keys: in.Keys, Facts: in.Facts, Local: local, Peers: l.peers.Observe(),
	}
}

// askAnew leaves connections to the API server that went out from an address which this
// host has no longer: what it is called now must be heard.
func (l *loop) askAnew() {
	_, client := l.inputs.API()
	if client == nil {
		return
	}
	held, err := l.host.Addresses()
	if err != nil {
		return // then it takes longer
	}
	if n := client.Leave(func(addr netip.Addr) bool { return slices.Contains(held, addr) }); n > 0 {
		l.log.Info("asking the Kubernetes API anew, as the host's address changed", "connections", n)
	}
}

// source gives the engine the state that this node should have.
func (l *loop) source(context.Context) (*round.Node, string, bool) {
	in, ok := l.inputs.Now()
	if !ok {
		return nil, "", false
	}
	before := l.State()
	next, do := round.Make(before, func() round.Observed { return l.observe(in) }, l.peers.Aim, time.Now())
	l.take(next, do)
	l.peers.Follow(do)
	if do.Fresh {
		last := next.Last()
		l.peers.Equip(last.Input, last.Node)
	}
	if l.leaving.Swap(do.Leaving) != do.Leaving {
		l.announce()
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
	if do.Heard {
		l.files.heard.Changed()
		l.files.found.Changed()
	}
	if do.Again > 0 {
		time.AfterFunc(do.Again, l.trigger.Ring)
	}
	return do.Node, do.Digest, true
}

// hurried gives an urgent pass the routes, when links moved since the last
// projection. All else that a move changes can wait for the whole pass.
func (l *loop) hurried(context.Context) (*round.Node, string, bool) {
	in := round.Observed{Cluster: l.config.Cluster, Node: l.config.Node, Peers: l.peers.ObserveLinks()}
	next, do, ok := round.Reroute(l.State(), in, time.Now())
	if next.Last().Node == nil {
		return nil, "", false
	}
	l.take(next, do)
	if !ok {
		return nil, "", false
	}
	return next.Routes(), "", true
}

// take keeps a state, and carries out what whole and urgent rounds have in common.
func (l *loop) take(next round.State, do round.Effects) {
	l.state.Store(&next)
	for _, m := range do.Moves {
		l.log.Info("moved", m.Attrs()...)
		l.metrics.Moved(m)
	}
	l.peers.Do(do)
}

// routed follows each pass: the flows of this node go where the routes lead now.
func (l *loop) routed() { l.host.Routed(l.State().Routed()) }

// readyTime is how long after its first pass a gateway may still lack something
// before it is used all the same.
const readyTime = 5 * time.Second

// reported takes the outcome of each round.
func (l *loop) reported(r converge.Report) {
	next, live := round.Applied(l.State())
	l.state.Store(&next)
	last := next.Last()
	l.metrics.Count(r)
	switch {
	case r.Clean():
		l.peers.SetReady(true)
		l.peers.SetTakes(host.TakesTransit(last.Node))
	case !r.Interrupted && !l.ended:
		// A pass may take long on a machine that is busy, so it counts from its end.
		l.ended = true
		time.AfterFunc(readyTime, func() { l.peers.SetReady(true) })
	}
	l.peers.Publish(live)
	l.files.paths.Changed()
	l.files.shape.Changed()
	l.peers.Standing(last.Standing(r))
	l.routed()
	l.outcome.Store(&round.Outcome{Report: r, Projection: last, Leaving: next.Leaving()})
	l.publication.Look()
}

// announce tells other agents whether this gateway is to be left, and looks anew.
func (l *loop) announce() {
	l.peers.SetDraining(l.drain.Is() || l.leaving.Load())
	l.urgent.Ring()
	l.trigger.Ring()
}
