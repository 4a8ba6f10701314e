package nodeagent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/feed"
	"hawser.dev/hawser/nodeagent/flows"
	"hawser.dev/hawser/nodeagent/ipsec"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/pathmtu"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// Agent converges one node. Make it with New, then call Run, Plan or Cleanup
// once, then Close.
type Agent struct {
	config  Config
	log     *slog.Logger
	trigger bell.Bell // "look again"
	drift   bell.Bell // "the kernel's state changed"
	urgent  bell.Bell // "a link may have changed"

	namespace *kernel.Namespace
	ruleset   *kernel.Ruleset
	charon    *ipsec.Charon
	secured   *ipsec.Watch
	records   *dns.Store
	engine    *converge.Engine[*node]
	metrics   *metrics
	outlets   []*outlet
	inputs    *inputs
	peers     *peers
	reporter  *kube.Reporter // nil without a Kubernetes API

	choice *choice
	drain  *drain
	saver  saver[map[string]keptPath]
	shapes saver[keptShape]
	ages   saver[map[string]map[string]time.Time]
	keeper *flows.Keeper
	finder *pathmtu.Finder

	endpoints *endpoints
	published *publishing // nil = there is no Kubernetes API

	diagnosing sync.Mutex // packets are being followed

	lingerer  lingerer // of the engine's goroutine, as what follows
	shifter   shifter
	before    *fabric.Shape // that the clusters leave; nil = none
	counting  *bool         // the kernel can count connections; nil = not found out
	former    bool          // some way is one of it
	last      memo
	mover     mover
	sizes     sizes
	cabling   *cabling
	slots     project.Memo // of the projections so far
	exports   effective
	heard     keptLive
	announcer announcer
	passed    bool        // a pass came to its end since the start
	leaving   atomic.Bool // this node's gateway left the fabric and lingers
	// shown is what status tells; the engine's goroutine swaps it.
	shown atomic.Pointer[view]
	named atomic.Bool // names are answered
}

// node is the desired state as the engine takes it.
type node struct {
	desired.State
	decommission bool
}

// New opens what an agent needs. It changes nothing on the host.
func New(config Config, log *slog.Logger) (*Agent, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	namespace, err := kernel.Open("")
	if err != nil {
		return nil, err
	}
	a := parts(config, log)
	a.namespace = namespace
	if err := a.open(); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	a.wire()
	return a, nil
}

// parts are those of an agent that can be made without anything else.
func parts(config Config, log *slog.Logger) *Agent {
	a := &Agent{
		config:    config,
		log:       log,
		trigger:   bell.New(),
		drift:     bell.New(),
		urgent:    bell.New(),
		choice:    newChoice(config.Cluster, log, time.Now()),
		saver:     newSaver[map[string]keptPath]("links in use", config.statePath("paths.json")),
		shapes:    newSaver[keptShape]("shape", config.statePath("shape.json")),
		ages:      newSaver[map[string]map[string]time.Time]("ages of exports", config.statePath("ages.json")),
		charon:    &ipsec.Charon{Dir: config.statePath("ipsec"), Host: config.VICI, Kernel: sync.OnceValue(ipsec.KernelESP), Log: log},
		records:   dns.NewStore(),
		metrics:   newMetrics(config.Cluster, config.Node),
		outlets:   newOutlets(config.Metrics, log),
		endpoints: newEndpoints(config, log),
		keeper:    flows.New(flows.Config{Device: desired.NodeLink, Log: log}),
		heard: keptLive{
			path: config.statePath("heard.json"), stale: cmp.Or(config.FeedStale, feed.StaleTime), wake: bell.New(),
		},
	}
	a.ruleset = kernel.NewRuleset(kernel.NFTOptions{}, a.drift)
	a.finder = pathmtu.New(pathmtu.Config{Log: log, OnChange: a.urgent.Ring})
	a.peers = newPeers(config, log, peersHooks{look: a.look, urgent: func() { a.urgent.Ring(); a.endpoints.wake.Ring() }, ages: a.ages.wake.Ring})
	a.ages.every = saveLiveEvery
	a.cabling = newCabling(config, log, a.look)
	a.shown.Store(&view{})
	return a
}

// open makes what may fail: what the state folder holds, and clients of the API.
func (a *Agent) open() (err error) {
	if a.drain, err = newDrain(a.config.statePath(drainedFile)); err != nil {
		return err
	}
	if a.inputs, err = newInputs(a.config, a.log, a.look); err != nil {
		return err
	}
	a.published, err = a.newPublishing()
	return err
}

// wire tells the parts of each other.
func (a *Agent) wire() {
	if a.inputs.client != nil {
		a.reporter = kube.NewReporter(a.inputs.client, a.config.Node, a.log, a.nodeStatus)
	}
	a.endpoints.look, a.endpoints.resolve = a.look, a.inputs.resolver.again
	a.endpoints.links, a.endpoints.meters = a.peers.snapshot, a.namespace.Meters
	a.endpoints.probe, a.endpoints.apart = a.peers.prober.Aside, a.cabling.Apart
	a.endpoints.secured = func() map[string]ipsec.State { return a.secured.States() }
	a.cabling.aside = a.endpoints.aside
	a.choice.moved = a.moved
	a.metrics.watch(a.present)
	a.mover.keeper = a.keeper
	a.sizes.finder = a.finder
	a.engine = &converge.Engine[*node]{
		Stages:       a.stages(),
		Log:          a.log,
		Decommission: func(n *node) bool { return n.decommission },
		OnReport:     a.reported,
		Resync:       a.config.Resync,
		Drift:        a.drift,
		Hurry:        &converge.Hurry[*node]{Source: a.hurried, Trigger: a.urgent, Done: a.routed},
	}
	a.secured = &ipsec.Watch{Charon: a.charon, Log: a.log, Wanted: a.connectionsWanted, Look: a.look}
}

// Close releases what New opened; the node keeps its state.
func (a *Agent) Close() error { return a.namespace.Close() }

// look asks for a pass.
func (a *Agent) look() { a.trigger.Ring() }
