package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/feed"
	"hawser.dev/hawser/nodeagent/flows"
	"hawser.dev/hawser/nodeagent/ipsec"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/pathmtu"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/tunnel"
	"hawser.dev/hawser/schema/fabric"
)

// Agent converges one node. Make it with New, then call Run, Plan or Cleanup
// once, then Close.
type Agent struct {
	config  Config
	log     *slog.Logger
	trigger chan struct{} // size one: "look again"
	urgent  chan struct{} // size one: "a link may have changed"

	namespace *kernel.Namespace
	charon    *ipsec.Charon
	secured   *ipsec.Watch
	records   *dns.Store
	engine    *converge.Engine[*node]
	metrics   *metrics
	inputs    *inputs
	peers     *peers
	reporter  *kube.Reporter // nil without a Kubernetes API

	choice *choice
	drain  *drain
	saver  saver[map[string]keptPath]
	shapes saver[keptShape]
	keeper *flows.Keeper
	finder *pathmtu.Finder

	endpoints *endpoints
	published *publishing // nil = there is no Kubernetes API

	diagnosing sync.Mutex // packets are being followed

	lingerer lingerer // of the engine's goroutine, as what follows
	shifter  shifter
	before   *fabric.Shape // that the clusters leave; nil = none
	former   bool          // some way is one of it
	last     memo
	mover    mover
	sizes    sizes
	cabling  *cabling
	slots    project.Memo // of the projections so far
	exports  effective
	heard    keptLive
	passed   bool        // a pass came to its end since the start
	leaving  atomic.Bool // this node's gateway left the fabric and lingers
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
	drain, err := newDrain(config.statePath(drainedFile))
	if err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	a := &Agent{
		config:    config,
		log:       log,
		trigger:   make(chan struct{}, 1),
		urgent:    make(chan struct{}, 1),
		drain:     drain,
		choice:    newChoice(config.Cluster, log, time.Now()),
		saver:     newSaver[map[string]keptPath]("links in use", config.statePath("paths.json")),
		shapes:    newSaver[keptShape]("shape", config.statePath("shape.json")),
		namespace: namespace,
		charon:    &ipsec.Charon{Dir: config.statePath("ipsec"), Host: config.VICI, Kernel: sync.OnceValue(ipsec.KernelESP), Log: log},
		records:   dns.NewStore(),
		metrics:   newMetrics(),
		endpoints: newEndpoints(config, log),
		heard: keptLive{
			path: config.statePath("heard.json"), stale: cmp.Or(config.FeedStale, feed.StaleTime), wake: make(chan struct{}, 1),
		},
	}
	if a.inputs, err = newInputs(config, log, a.look); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	if a.inputs.client != nil {
		a.reporter = kube.NewReporter(a.inputs.client, config.Node, log, a.nodeStatus)
	}
	a.peers = newPeers(config, log, peersHooks{look: a.look, urgent: func() { token(a.urgent); token(a.endpoints.wake) }})
	a.endpoints.look, a.endpoints.resolve = a.look, a.inputs.resolver.again
	a.endpoints.links, a.endpoints.meters = a.peers.snapshot, namespace.Meters
	a.choice.moved = a.moved
	a.cabling = newCabling(config, log, a.look)
	a.keeper = flows.New(flows.Config{Device: desired.NodeLink, Log: log})
	a.mover.keeper = a.keeper
	a.finder = pathmtu.New(pathmtu.Config{Log: log, OnChange: func() { token(a.urgent) }})
	a.sizes.finder = a.finder
	a.engine = &converge.Engine[*node]{
		Stages:       a.stages(),
		Log:          log,
		Decommission: func(n *node) bool { return n.decommission },
		OnReport:     a.reported,
		Resync:       config.Resync,
		Hurry:        &converge.Hurry[*node]{Source: a.hurried, Trigger: a.urgent, Done: a.routed},
	}
	a.secured = &ipsec.Watch{Charon: a.charon, Log: log, Wanted: a.connectionsWanted, Look: a.look}
	a.shown.Store(&view{})
	if a.published, err = a.newPublishing(); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return a, nil
}

// Close releases what New opened; the node keeps its state.
func (a *Agent) Close() error { return a.namespace.Close() }

// look asks for a pass.
func (a *Agent) look() { token(a.trigger) }

// stages gives the kinds in the order of creation: policy before path, name last.
func (a *Agent) stages() []converge.Stage[*node] {
	return append(a.kernelStages(), a.nameStages()...)
}

// nameStages are the DNS data, which only the running agent holds.
func (a *Agent) nameStages() []converge.Stage[*node] {
	return []converge.Stage[*node]{
		converge.NewStage(a.records.Zones(),
			func(n *node) []desired.Zone { return n.Zones }, func(z desired.Zone) string { return z.Origin }),
		converge.NewStage(a.records.Services(),
			func(n *node) []desired.Service { return n.Services }, func(s desired.Service) string { return s.Origin }),
	}
}

func (a *Agent) kernelStages() []converge.Stage[*node] {
	userspace := tunnel.Launcher{LogDir: a.config.StateDir}
	ns := a.namespace
	return []converge.Stage[*node]{
		converge.NewStage(kernel.NewTables(kernel.NFTOptions{}),
			func(n *node) []desired.Table { return n.Tables }, func(t desired.Table) string { return t.Origin }),
		converge.NewStage(kernel.NewElements(kernel.NFTOptions{}),
			func(n *node) []desired.Element { return n.Elements }, func(e desired.Element) string { return e.Origin }),
		converge.NewStage(kernel.NewLinks(ns, userspace).WithESP(a.charon),
			func(n *node) []desired.Link { return n.Links }, func(l desired.Link) string { return l.Origin }),
		// After the links, as some settings are those of a link.
		converge.NewStage(kernel.NewSysctls(ns, a.config.statePath("sysctls.json")).Below(a.config.ProcSys),
			func(n *node) []desired.Sysctl { return n.Sysctls }, func(s desired.Sysctl) string { return s.Origin }),
		converge.NewStage(kernel.NewWireguards(ns),
			func(n *node) []desired.Wireguard { return n.Wireguards }, func(w desired.Wireguard) string { return w.Origin }),
		converge.NewStage(kernel.NewAddresses(ns),
			func(n *node) []desired.Address { return n.Addresses }, func(a desired.Address) string { return a.Origin }),
		converge.NewStage(kernel.NewNeighbours(ns),
			func(n *node) []desired.Neighbour { return n.Neighbours }, func(n desired.Neighbour) string { return n.Origin }),
		converge.NewStage(kernel.NewForwards(ns),
			func(n *node) []desired.Forward { return n.Forwards }, func(f desired.Forward) string { return f.Origin }),
		converge.Urgent(converge.NewStage(kernel.NewRoutes(ns),
			func(n *node) []desired.Route { return n.Routes }, func(r desired.Route) string { return r.Origin })),
		converge.NewStage(kernel.NewRules(ns),
			func(n *node) []desired.Rule { return n.Rules }, func(r desired.Rule) string { return r.Origin }),
		converge.NewStage(ipsec.NewConnections(a.charon),
			func(n *node) []desired.IPsec { return n.IPsecs }, func(c desired.IPsec) string { return c.Origin }),
		// Last, as nothing comes in before: what does finds its way over our own link.
		converge.NewStage(kernel.NewPeers(ns),
			func(n *node) []desired.Peer { return n.Peers }, func(p desired.Peer) string { return p.Origin }),
	}
}

// Run converges until ctx ends. The node keeps its state: traffic goes on while
// an agent is replaced.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("make socket folder: %w", err)
	}
	server, err := a.listen()
	if err != nil {
		return err
	}
	a.choice.restore(a.saver.load(a.log))
	a.shifter.restore(a.shapes.load(a.log), time.Now())
	a.endpoints.restore()
	a.heard.restore(time.Now(), a.log)
	defer time.AfterFunc(a.heard.stale, a.look).Stop()
	a.peers.prober.SetReady(tunnelsStand())
	a.announce()
	var wait sync.WaitGroup
	var errs []error
	var mu sync.Mutex
	start := func(name string, work func(context.Context) error) {
		wait.Go(func() {
			err := work(ctx)
			if err == nil || ctx.Err() != nil {
				return
			}
			mu.Lock()
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			mu.Unlock()
			cancel()
		})
	}
	start("status", server.run)
	start("inputs", a.inputs.run)
	start("HawserNode", a.tellCluster)
	start("peers", a.peers.run)
	start("kernel events", func(ctx context.Context) error { return kernel.Monitor(ctx, a.trigger) })
	start("nftables events", func(ctx context.Context) error { return kernel.NFTMonitor(ctx, kernel.NFTOptions{}, a.trigger) })
	start("dns", a.serveNames)
	start("tunnels", a.tunnels().Run)
	start("ipsec", a.secured.Run)
	start("links of the run before", func(ctx context.Context) error { settled(ctx, a.look); return nil })
	start("flows", a.keeper.Run)
	start("path mtu", a.finder.Run)
	start("cables", a.cabling.Run)
	start("endpoints", a.endpoints.run)
	start("endpoints kept", a.endpoints.keep)
	start("what was heard", func(ctx context.Context) error { a.heard.run(ctx, a.log); return nil })
	if a.published != nil {
		start("objects", func(ctx context.Context) error { a.published.run(ctx); return nil })
	}
	start("links in use", func(ctx context.Context) error { a.saver.run(ctx, a.choice.kept, a.log); return nil })
	start("shape", func(ctx context.Context) error { a.shapes.run(ctx, a.shifter.keep, a.log); return nil })
	a.engine.Run(ctx, a.source, a.trigger)
	wait.Wait()
	return errors.Join(append(errs, a.forget())...)
}

// tunnels looks after the processes of this node's tunnel devices.
func (a *Agent) tunnels() *tunnel.Watch {
	return &tunnel.Watch{
		Log: a.log,
		Devices: func() []string {
			var names []string
			if n := a.shown.Load().node; n != nil {
				for _, l := range n.Links {
					if l.Type == desired.LinkWireguard {
						names = append(names, l.Name)
					}
				}
			}
			return names
		},
		Replaced: func(name string) {
			a.metrics.replaced.WithLabelValues(name).Inc()
			a.look()
		},
	}
}

// Plan gives what a pass would change in the kernel now. It needs the inputs, and changes nothing.
func (a *Agent) Plan(ctx context.Context) ([]converge.Change, error) {
	n, err := a.planned(ctx)
	if err != nil {
		return nil, err
	}
	// The DNS data lives in the running agent, so there is nothing to compare it with here.
	kernelOnly := converge.Engine[*node]{Stages: a.kernelStages(), Log: a.log, Decommission: a.engine.Decommission}
	return kernelOnly.Plan(ctx, n)
}

// Cleanup removes everything that carries Hawser's marks and restores sysctls.
func (a *Agent) Cleanup(ctx context.Context) (converge.Report, error) {
	report := a.engine.Once(ctx, &node{decommission: true}, "")
	held, err := flows.Release()
	for _, rule := range held {
		report.Changed = append(report.Changed, converge.Change{Kind: "rule", Op: diff.Delete, Key: rule})
	}
	return report, errors.Join(report.Err(), err)
}

// current is one consistent look at all inputs.
type current struct {
	fabric *fabric.Fabric
	digest string
	keys   *fabric.Keys
	facts  facts.State
	before *fabric.Shape // that the clusters leave; nil = none
}
