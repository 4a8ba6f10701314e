package nodeagent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/publisher"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/observe/metrics"
	"hawser.dev/hawser/nodeagent/observe/report"
	"hawser.dev/hawser/nodeagent/peer"
	"hawser.dev/hawser/nodeagent/round"
)

// Agent converges one node. Create it with New, then call Run, Plan or Cleanup once, then Close.
// Its fields do not change after New.
type Agent struct {
	config    Config
	loop      *loop
	engine    *converge.Engine[*round.DesiredNode]
	dns       *dnsServer
	metrics   *metrics.Metrics
	report    *report.Reporter
	control   *control.Control
	listeners control.HTTPListeners
}

// New opens the files, sockets and handles of an agent. It changes nothing on the host.
func New(config Config, log *slog.Logger) (*Agent, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	drain, err := control.OpenDrain(config.StateDir)
	if err != nil {
		return nil, err
	}
	shared, triggers, counts := newSharedState(config.Cluster, time.Now()), newTriggers(), metrics.New(config.Cluster, config.Node)
	inputs, err := input.Open(input.Config{
		Cluster: config.Cluster, Node: config.Node, FabricDir: config.FabricDir, KeysDir: config.KeysDir,
		Identity: config.Identity, Trust: config.Trust, Kube: config.Kube, FactsDir: config.FactsDir, HawserNodesDir: config.HawserNodesDir,
		StateDir: config.StateDir, Log: log,
		Changed: func() { triggers.trigger.Fire(); triggers.election.Fire(); triggers.names.Fire() },
	})
	if err != nil {
		return nil, err
	}
	machine, err := host.Open(host.Config{
		Cluster: config.Cluster, Node: config.Node, StateDir: config.StateDir, VICI: config.VICI, ProcSys: config.ProcSys,
		Log: log, TriggerRound: triggers.trigger.Fire, Drift: triggers.drift, OnTunnelProcess: counts.Tunnel, OnTunnelReplaced: counts.Replaced,
		Desired: func() *round.DesiredNode { return shared.Outcome().Node },
	})
	if err != nil {
		return nil, err
	}
	elector := newElector(config, inputs, machine, shared, drain, triggers, log)
	peers := peer.New(peer.Config{
		Cluster: config.Cluster, StateDir: config.StateDir, Stale: config.FeedStale, Log: log,
		TriggerRound: triggers.trigger.Fire, Urgent: triggers.urgent.Fire, Resolve: inputs.Resolve, TunnelCounters: machine.TunnelCounters, Secured: machine.IPsecStates,
		RemotePackets: machine.RemotePackets, NodeDeviceExists: host.NodeDeviceExists(),
	})
	api, client := inputs.API()
	publication, err := publisher.New(config.Kube, api, config.Node, func() publisher.Observed {
		return publisher.Observed{Outcome: shared.Outcome(), Links: peers.Links(), Draining: shared.ownGatewayRetiring.Load() || drain.Active()}
	}, log)
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	l := &loop{
		config: config, log: log, triggers: triggers, sharedState: shared, files: newStateFiles(config.StateDir), drain: drain,
		inputs: inputs, elector: elector, host: machine, peers: peers, publication: publication, metrics: counts,
		refused: map[string]bool{},
	}
	answers := &dnsServer{config: config, log: log, inputs: inputs, host: machine, records: dns.NewStore(), count: counts.Query, changed: triggers.names}
	listeners := control.NewHTTPListeners(config.Metrics, log)
	reporter := report.New(report.Config{
		Cluster: config.Cluster, Node: config.Node, Version: config.Version, Log: log, Client: client, HawserNodesDir: config.HawserNodesDir,
		Inputs: inputs, Elector: elector, Peers: peers, Host: machine, Publication: publication, Outcome: shared.Outcome, State: shared.State,
		Drained: drain.Active, DNSDown: answers.isDown, Drift: counts.DriftTotal, ExtraInputs: listeners.States,
		Resync: config.Resync,
	})
	counts.RegisterState(reporter.MetricsSnapshot)
	// DNS comes last: a name appears after its route.
	stages := slices.Concat(machine.Stages(), host.NameStages(answers.records))
	kinds := make([]string, len(stages))
	for i, s := range stages {
		kinds[i] = s.Name()
	}
	counts.InitKinds(kinds)
	return &Agent{
		config: config, loop: l, dns: answers, metrics: counts, report: reporter, listeners: listeners,
		engine: &converge.Engine[*round.DesiredNode]{
			Stages:       stages,
			Log:          log,
			Decommission: decommission,
			OnReport:     l.onReport,
			Resync:       config.Resync,
			Drift:        triggers.drift,
			Urgent:       &converge.UrgentConfig[*round.DesiredNode]{Source: l.urgentState, Trigger: triggers.urgent, Done: l.onRoutesWritten},
		},
		control: control.New(control.Config{
			Cluster: config.Cluster, Node: config.Node, Socket: config.Socket, Log: log,
			Status: reporter.Status, Ready: reporter.Ready, Metrics: counts.Handler(), Drain: drain, OnDrainChange: l.onDrainChange,
			Outcome: shared.Outcome, State: shared.State, Links: peers.Links, Names: answers.addrs, Inventory: machine.Inventory,
			Plan: config.planWithSecondAgent, Snapshot: func() any { return l.agentSnapshot() },
			MissingTests: peers.MissingDirectTests,
		}),
	}, nil
}

// newElector returns the Elector of this node. It passes its decisions to the inputs: in the fabric
// of all readers, a gateway's holder is its node.
func newElector(config Config, inputs *input.Inputs, machine *host.Host, now *sharedState, drain *control.Drain, wake triggers, log *slog.Logger) *election.Elector {
	view := func() (election.ClusterView, bool) {
		v, ok := inputs.ElectionView()
		v.Drained = drain.Active()
		return v, ok
	}
	gateways := func() []election.Gateway { v, _ := view(); return v.Gateways }
	var store election.LeaseStore
	if _, client := inputs.API(); client != nil {
		store = kube.NewLeaseStore(client, func() bool { return len(gateways()) > 0 }, log)
	} else if config.LeasesDir != "" {
		store = election.NewDirStore(config.LeasesDir, gateways, log)
	}
	return election.New(election.Config{
		Node: config.Node, Store: store, View: view, StateDir: config.StateDir, Log: log, Trigger: wake.election,
		Fence: machine.Fence(func() [][2]int { v, _ := view(); return v.Ports }),
		TunnelsRemoved: func(after time.Time) bool {
			v := now.Outcome()
			if v.Node == nil || !v.Report.At.After(after) {
				return false
			}
			own := v.Input.Fabric.Cluster(config.Cluster)
			if own == nil || own.GatewayOn(config.Node) == nil {
				return v.Report.Clean()
			}
			return !own.GatewayOn(config.Node).HasNodeSelector()
		},
		OnChange: inputs.SetHolders,
	})
}

// decommission reports whether to remove all objects of Hawser from a node.
func decommission(n *round.DesiredNode) bool { return n.Decommission }

// Close releases the resources that New opened; the node keeps its state.
func (a *Agent) Close() error { return a.loop.host.Close() }
