package nodeagent

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"sync"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/feed"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
)

// peers is everything that talks to other agents: probes and feeds.
type peers struct {
	config Config
	log    *slog.Logger
	hooks  peersHooks
	server *feed.Server
	client *feed.Client

	prober *health.Prober

	mu      sync.Mutex
	used    map[string]project.Path
	said    project.Live // to other clusters
	probing probing
	feeding feeding
	err     error // why feeds could not be set up
}

// peersHooks are what peers call when something changed. They must not block.
type peersHooks struct {
	look   func()
	urgent func() // a link
	ages   func() // since when exports of other clusters count
}

func newPeers(config Config, log *slog.Logger, hooks peersHooks) *peers {
	p := &peers{config: config, log: log, hooks: hooks}
	shared := feed.Config{Log: log, Timing: feed.Timing{Stale: config.FeedStale}}
	p.server = feed.NewServer(shared)
	shared.OnChange, shared.OnAges = p.heard, hooks.ages
	p.client = feed.NewClient(shared)
	p.prober = health.New(health.Config{
		Cluster: config.Cluster, Port: desired.ProbePort, Log: log, OnChange: hooks.urgent,
	})
	return p
}

// heard passes on to this cluster's nodes what came from other clusters.
func (p *peers) heard() {
	if err := p.server.SetRelay(p.client.Relay()); err != nil {
		p.log.Error("relay not published", "err", err)
	}
	p.hooks.look()
	p.hooks.urgent() // a link that others pass on over may have died
}

// probe adapts the probes to the inputs in force.
func (p *peers) probe(in current) {
	probing := probesOf(in.fabric, in.before, in.facts.Facts.Nodes, p.config.Cluster, p.config.Node)
	p.mu.Lock()
	changed := !reflect.DeepEqual(probing, p.probing)
	p.probing = probing
	p.mu.Unlock()
	if changed {
		p.prober.SetGateway(probing.gateway)
		p.prober.SetNodes(probing.others)
		p.prober.SetSettings(probing.settings)
		p.prober.SetListen(probing.listen)
		p.prober.SetTargets(probing.targets)
	}
}

// probed gives what is probed now.
func (p *peers) probed() probing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probing
}

// feed adapts the feeds to the inputs in force.
func (p *peers) feed(in current, paths map[string]project.Path) {
	feeding, err := feedsOf(in, p.config.Cluster, p.config.Node, paths)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if err != nil || reflect.DeepEqual(feeding, p.feeding) {
		return
	}
	p.feeding = feeding
	p.server.SetIdentity(feeding.identity)
	p.server.SetPeers(feeding.allow)
	p.server.SetNodes(feeding.nodes)
	p.server.SetListen(feeding.listen)
	p.client.SetIdentity(feeding.identity)
	p.client.SetPeers(feeding.follow)
}

// run probes and feeds until ctx ends.
func (p *peers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.prober.Run(ctx) })
	group.Go(func() error { return p.server.Run(ctx) })
	group.Go(func() error { return p.client.Run(ctx) })
	return group.Wait()
}

func (p *peers) snapshot() health.Snapshot { return p.prober.Snapshot() }

// use tells the prober, and so the other ends, which link to each neighbour is chosen.
func (p *peers) use(paths map[string]project.Path) {
	p.mu.Lock()
	changed := !maps.Equal(paths, p.used)
	p.used = paths
	p.mu.Unlock()
	if changed {
		p.prober.SetUse(paths)
	}
}

func (p *peers) live() map[string]project.Live { return p.client.Snapshot() }

// publish tells other clusters the state of this cluster's exports.
func (p *peers) publish(live project.Live) {
	p.say(func(said *project.Live) bool {
		said.Cluster, said.Exports = live.Cluster, live.Exports
		return true
	})
}

// tell tells other clusters in which shape this one is, and what its links are
// worth for what is passed on.
func (p *peers) tell(shape string, passing *project.Passing) {
	p.say(func(said *project.Live) bool {
		same := said.Shape == shape && reflect.DeepEqual(said.Passing, passing)
		said.Shape, said.Passing = shape, passing
		return !same && said.Cluster != ""
	})
}

// say changes what other clusters are told; change reports whether it did.
func (p *peers) say(change func(*project.Live) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !change(&p.said) {
		return
	}
	if err := p.server.SetLive(p.said); err != nil {
		p.log.Error("live state not published", "err", err)
	}
}

// state says which feeds are lost.
func (p *peers) state() []status.InputState {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	out := []status.InputState{}
	if err != nil {
		out = append(out, status.InputState{Name: "feed", Error: err.Error()})
	}
	for _, s := range p.client.States() {
		out = append(out, status.InputState{Name: "feed " + s.Cluster + "/" + s.Gateway, OK: s.Connected, Error: s.Err})
	}
	return out
}
