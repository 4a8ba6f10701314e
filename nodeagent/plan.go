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

// agentSnapshot is what only a running agent knows: a plan without it would move links and
// forget what other clusters say.
type agentSnapshot struct {
	State    round.State             `json:"state"`
	Peers    round.PeerStatus        `json:"peers"`
	Resolved map[string][]netip.Addr `json:"resolved"` // as in model.Local
	Holders  map[string]string       `json:"holders,omitempty"`
}

// agentSnapshot gives what this agent remembers and observes now.
func (l *loop) agentSnapshot() agentSnapshot {
	holders, _ := l.elector.Holders()
	return agentSnapshot{State: l.State(), Peers: l.peers.Observe(), Resolved: l.inputs.Resolved(), Holders: holders}
}

// planned makes the round that the agent which runs on this node would make now, and that
// of an agent which starts where none of this version runs. Nothing of it is carried out.
func (l *loop) planned(ctx context.Context) (*round.DesiredNode, error) {
	var running agentSnapshot
	runs, err := control.Get(ctx, l.config.Socket, "/sight", &running)
	if err != nil {
		return nil, err
	}
	holders := running.Holders
	if !runs {
		holders, _ = l.elector.Holders() // as the previous agent saved them
	}
	l.inputs.SetHolders(holders)
	l.inputs.RefreshOnce(ctx)
	in, ok := l.inputs.Current()
	if !ok {
		return nil, l.inputs.NotReadyReason()
	}
	now := time.Now()
	if !runs || !running.State.Initialized() {
		_, do := round.StepUntilStable(l.begin(now), func() round.Observed { return l.observe(in) }, l.peers.SetSpec, now)
		return do.Node, nil
	}
	if running.Peers.Spec != nil {
		l.peers.SetSpec(running.Peers.Spec) // what comes to it is new to this one, too
	}
	l.ownGatewayRemoved.Store(running.State.IsRetiring(l.config.Cluster, l.config.Node))
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

// planBeside plans as another agent beside the one that runs does: the engine and its
// handles are for their own goroutine.
func (c Config) planBeside(ctx context.Context) (changes []converge.Change, err error) {
	beside, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, beside.Close()) }()
	return beside.Plan(ctx)
}

// Plan gives what a pass would change in the kernel now. It needs the inputs, and changes nothing.
func (a *Agent) Plan(ctx context.Context) ([]converge.Change, error) {
	n, err := a.loop.planned(ctx)
	if err != nil {
		return nil, err
	}
	// The DNS data lives in the running agent, so there is nothing to compare it with here.
	kernelOnly := converge.Engine[*round.DesiredNode]{Stages: a.loop.host.Stages(), Log: a.loop.log, Decommission: decommission}
	return kernelOnly.Plan(ctx, n)
}

// Cleanup removes everything that carries Hawser's marks and restores sysctls.
func (a *Agent) Cleanup(ctx context.Context) (converge.Report, error) {
	out := a.engine.Once(ctx, &round.DesiredNode{Decommission: true}, "")
	held, err := host.Release()
	for _, rule := range held {
		out.Changed = append(out.Changed, converge.Change{Kind: "rule", Op: diff.Delete, Key: rule})
	}
	return out, errors.Join(out.Err(), err, a.loop.elector.RemoveFence())
}
