package nodeagent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/kernel/host"
	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/round"
)

// agentSnapshot has state that only the running agent knows. Without it a plan would move links
// and lose the state of other clusters.
type agentSnapshot struct {
	State    round.State             `json:"state"`
	Peers    round.PeerStatus        `json:"peers"`
	Resolved map[string][]netip.Addr `json:"resolved"` // as in model.HostState
	Holders  map[string]string       `json:"holders,omitempty"`
}

// agentSnapshot returns the stored and observed state of this agent.
func (l *loop) agentSnapshot() agentSnapshot {
	holders, _ := l.elector.Holders()
	return agentSnapshot{State: l.State(), Peers: l.peers.Observe(), Resolved: l.inputs.Resolved(), Holders: holders}
}

// planned computes the next round of the running agent. If no agent runs, it computes the first
// round of a new agent. It applies nothing.
func (l *loop) planned(ctx context.Context) (*round.DesiredNode, error) {
	var running agentSnapshot
	runs, err := control.Get(ctx, l.config.Socket, "/snapshot", &running)
	if err != nil {
		return nil, err
	}
	holders := running.Holders
	if !runs {
		holders, _ = l.elector.Holders() // saved by the previous agent
	}
	l.inputs.SetHolders(holders)
	l.inputs.RefreshOnce(ctx)
	in, ok := l.inputs.Current()
	if !ok {
		return nil, l.inputs.NotReadyReason()
	}
	now := time.Now()
	if !runs || !running.State.Initialized() {
		_, do := round.StepUntilStable(l.restore(now), func() round.Observed { return l.observe(in) }, l.peers.SetSpec, now)
		return do.Node, nil
	}
	if running.Peers.Spec != nil {
		l.peers.SetSpec(running.Peers.Spec) // this agent has no data of its targets either
	}
	l.ownGatewayRetiring.Store(running.State.IsRetiring(l.config.Cluster, l.config.Node))
	_, do := round.StepUntilStable(running.State, func() round.Observed {
		seen := l.observe(in)
		seen.Peers = seen.Peers.WithRunning(running.Peers)
		for name, addrs := range running.Resolved {
			seen.Local.Resolved[name] = addrs
		}
		return seen
	}, l.peers.SetSpec, now)
	return do.Node, nil
}

// planWithSecondAgent plans with a second agent: the engine and its handles are not safe for
// concurrent use.
func (c Config) planWithSecondAgent(ctx context.Context) (changes []converge.Change, err error) {
	second, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, second.Close()) }()
	return second.Plan(ctx)
}

// Plan returns the changes that a round would make in the kernel now. It needs the inputs, and
// changes nothing.
func (a *Agent) Plan(ctx context.Context) ([]converge.Change, error) {
	n, err := a.loop.planned(ctx)
	if err != nil {
		return nil, err
	}
	// Only the running agent has the DNS data, so it is not compared.
	kernelOnly := converge.Engine[*round.DesiredNode]{Stages: a.loop.host.Stages(), Log: a.loop.log, Decommission: decommission}
	return kernelOnly.Plan(ctx, n)
}

// Cleanup removes all objects with Hawser's marks and restores sysctls.
func (a *Agent) Cleanup(ctx context.Context) (converge.Report, error) {
	out := a.engine.Once(ctx, &round.DesiredNode{Decommission: true}, "")
	removed, err := host.RemoveStaleBlocks()
	for _, rule := range removed {
		out.Changed = append(out.Changed, converge.Change{Kind: "rule", Op: diff.Delete, Key: rule})
	}
	return out, errors.Join(out.Err(), err, a.loop.elector.RemoveFence())
}
