// Package peer talks to other agents: it probes links and path MTUs, hears and says the
// state of exports, finds out where remote gateways are reached, and changes the tunnel of
// a pair. Observe gives what all that is known of, and Aim and Do take what package round
// decided from it; nothing is decided here but within these protocols.
package peer

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/kernel/ipsec"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/peer/pathmtu"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
)

// Config is what Peers needs for their whole life. No function of it may block, but for
// Meters.
type Config struct {
	Cluster      string
	StateDir     string
	Stale        time.Duration // how long a lost feed's data counts [feed.DefaultStaleAfter]
	Log          *slog.Logger
	TriggerRound func() // asks for a round
	Urgent       func() // a link may have changed
	Resolve      func() // names of endpoints are to be looked up again
	// Meters reads counters of tunnels from the kernel, and Secured the state of IPsec
	// connections.
	Meters  func(context.Context, []desired.Tunnel) ([]kernel.TunnelCounters, error)
	Secured func() map[string]ipsec.State
}

// saveAgesEvery is how often at most the ages of exports are written.
const saveAgesEvery = 5 * time.Second

// Peers are the agents of other nodes. Their methods may be called from any goroutine,
// but for Aim and Do, which one goroutine calls.
type Peers struct {
	config        Config
	prober        *health.Prober
	server        *feed.Server
	client        *feed.Client
	firstSeenFile *statefile.File[map[string]map[string]time.Time]
	finder        *pathmtu.Finder
	endpoints     *endpointSelector
	tunnel        *migration.Negotiator
	layer         *transport.Transport

	mu        sync.Mutex
	aim       *round.PeerSpec
	links     map[string]model.Path
	up        map[health.GatewayID]bool // links that are up
	sizes     round.PathMTUSpec
	feeds     round.FeedSpec
	feedErr   error              // why feeds could not be set up
	published model.ClusterState // to other clusters
}

// New makes Peers that go on where the run before ended. It sends nothing before Run.
func New(config Config) *Peers {
	config.Stale = cmp.Or(config.Stale, feed.DefaultStaleAfter)
	p := &Peers{
		config:        config,
		firstSeenFile: statefile.New[map[string]map[string]time.Time](config.StateDir, "ages.json"),
	}
	shared := feed.Config{Log: config.Log, Timing: feed.Timing{StaleAfter: config.Stale}}
	p.server = feed.NewServer(shared)
	shared.OnChange, shared.OnFirstSeen = p.updateRelay, p.firstSeenFile.MarkDirty
	p.client = feed.NewClient(shared)
	p.client.RestoreFirstSeen(p.firstSeenFile.LoadOrZero(config.Log))
	wake, refreshEndpoints := trigger.New(), trigger.New()
	p.prober = health.New(health.Config{
		Cluster: config.Cluster, Port: desired.ProbePort, Wake: wake, OnChange: func() { config.Urgent(); refreshEndpoints.Fire() },
	})
	p.finder = pathmtu.New(pathmtu.Config{Port: desired.ProbePort, Log: config.Log, Wake: wake, OnChange: config.Urgent})
	tunnels := statefile.New[map[string]migration.Saved](config.StateDir, "tunnels.json")
	p.tunnel = migration.New(migration.Config{
		Port: desired.ProbePort, Log: config.Log, Wake: wake, OnChange: config.TriggerRound,
		Restored: tunnels.LoadOrZero(config.Log), Save: tunnels.Save,
	})
	p.endpoints = newEndpointSelector(config, p.prober, p.tunnel, wake, refreshEndpoints)
	p.layer = transport.New(transport.Config{
		Port: desired.ProbePort, Log: config.Log, Wake: wake,
		Machines: []transport.Protocol{p.prober, p.tunnel, p.finder, p.endpoints},
	})
	return p
}

// updateRelay publishes the states of other clusters to the nodes of this cluster.
func (p *Peers) updateRelay() {
	if err := p.server.PublishRelay(p.client.Relay()); err != nil {
		p.config.Log.Error("relay not published", "err", err)
	}
	p.config.TriggerRound()
	p.config.Urgent() // a link that others pass on over may have died
}

// Run talks to other agents until ctx ends.
func (p *Peers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		p.layer.Run, p.server.Run, p.client.Run, p.tunnel.Run, p.endpoints.run,
	} {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		p.firstSeenFile.Run(ctx, saveAgesEvery, p.client.FirstSeen, p.config.Log)
		return nil
	})
	return group.Wait()
}

// Observe gives what is known now.
func (p *Peers) Observe() round.PeerStatus {
	out := p.ObserveLinks()
	p.mu.Lock()
	out.Spec = p.aim
	p.mu.Unlock()
	out.Tunnels = p.tunnel.Tunnels()
	out.RemoteEndpoints, out.Observed = p.endpoints.snapshot()
	return out
}

// ObserveLinks gives the part of it that decides about paths, and asks the gateways anew
// whose links came up.
func (p *Peers) ObserveLinks() round.PeerStatus {
	links := p.prober.Snapshot()
	// The gateways whose links came up are asked anew: their feeds may wait for what got lost.
	up := make(map[health.GatewayID]bool, len(links.Links))
	for _, l := range links.Links {
		if l.State() == status.Connected {
			up[l.Target.Peer] = true
		}
	}
	p.mu.Lock()
	before := p.up
	p.up = up
	p.mu.Unlock()
	for peer := range up {
		if !before[peer] {
			p.client.Reconnect(peer.Cluster, peer.Gateway)
		}
	}
	// What passes, where that is less than the tunnel's MTU.
	out := map[string]int{}
	for _, path := range p.finder.Snapshot() {
		if path.State == pathmtu.BlackHole && path.PathMTU < path.MTU {
			out[path.Peer] = path.PathMTU
		}
	}
	return round.PeerStatus{Links: links, Live: p.client.Snapshot(), PathMTUs: out}
}

// SetSpec sets what is looked at from now on.
func (p *Peers) SetSpec(aim *round.PeerSpec) {
	p.mu.Lock()
	before := p.aim
	p.aim = aim
	p.mu.Unlock()
	if to := aim.Probing; before == nil || !reflect.DeepEqual(before.Probing, to) {
		p.prober.SetGateway(to.Gateway)
		p.prober.SetNodes(to.Others)
		p.prober.SetSettings(to.Settings)
		p.prober.SetListen(to.Listen)
		p.prober.SetTargets(to.Targets)
	}
	p.tunnel.Set(aim.OwnGateway(p.config.Cluster), aim.Pairs)
	p.endpoints.setRemotes(aim.Remotes)
}

// ApplyStep carries out what a step decided, as far as it is about other agents.
func (p *Peers) ApplyStep(e round.Effects) {
	p.setActiveLinks(e.Links)
	p.publish(func(said *model.ClusterState) bool {
		same := said.Shape == e.Shape && reflect.DeepEqual(said.Transit, e.Advertise)
		said.Shape, said.Transit = e.Shape, e.Advertise
		return !same && said.Cluster != ""
	})
	p.Publish(e.Publish)
}

// ApplyRound carries out what a whole round decided besides.
func (p *Peers) ApplyRound(e round.Effects) {
	p.feed(e.Feeds, e.FeedsErr)
	p.publish(func(said *model.ClusterState) bool {
		same := reflect.DeepEqual(said.Endpoints, e.PublishEndpoints)
		said.Endpoints = e.PublishEndpoints
		return !same && said.Cluster != ""
	})
	p.mu.Lock()
	same := e.Sizes.Self == p.sizes.Self && slices.Equal(e.Sizes.Listen, p.sizes.Listen) && slices.Equal(e.Sizes.Links, p.sizes.Links)
	p.sizes = e.Sizes
	p.mu.Unlock()
	if !same {
		p.finder.Set(e.Sizes.Self, e.Sizes.Listen, e.Sizes.Links)
	}
}

// setActiveLinks tells the prober, and so the other ends, which link to each neighbour is chosen.
func (p *Peers) setActiveLinks(links map[string]model.Path) {
	p.mu.Lock()
	changed := !maps.Equal(links, p.links)
	p.links = links
	p.mu.Unlock()
	if changed {
		p.prober.SetActiveLinks(links)
	}
}

func (p *Peers) feed(feeds round.FeedSpec, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feedErr = err
	if err != nil || reflect.DeepEqual(feeds, p.feeds) {
		return
	}
	p.feeds = feeds
	p.server.SetIdentity(feeds.Identity)
	p.server.SetPeers(feeds.Allow)
	p.server.SetNodes(feeds.Nodes)
	p.server.SetListen(feeds.Listen)
	p.client.SetIdentity(feeds.Identity)
	p.client.SetPeers(feeds.Follow)
}

// Publish tells other clusters the state of this cluster's exports; nil = as before.
func (p *Peers) Publish(live *model.ClusterState) {
	if live == nil {
		return
	}
	p.publish(func(said *model.ClusterState) bool {
		said.Cluster, said.Exports = live.Cluster, live.Exports
		return true
	})
}

// publish changes what other clusters are told; change reports whether it did.
func (p *Peers) publish(change func(*model.ClusterState) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !change(&p.published) {
		return
	}
	if err := p.server.Publish(p.published); err != nil {
		p.config.Log.Error("live state not published", "err", err)
	}
}

// SetProjection takes from a new projection what questions to remote gateways need.
func (p *Peers) SetProjection(in projection.Input, n *round.DesiredNode) {
	p.endpoints.setProjection(in, n)
}

// SetInstalled says which tunnels the kernel has, by remote gateway.
func (p *Peers) SetInstalled(tunnels map[string]migration.Installed) {
	if tunnels != nil {
		p.tunnel.SetInstalled(tunnels)
	}
}

// SetReady, SetDraining and SetTakes say of this gateway what health.Prober says there.
func (p *Peers) SetReady(ready bool)          { p.prober.SetReady(ready) }
func (p *Peers) SetDraining(draining bool)    { p.prober.SetDraining(draining) }
func (p *Peers) SetAcceptsTransit(takes bool) { p.prober.SetAcceptsTransit(takes) }

// UsesDriver reports whether any pair has a tunnel of a driver.
func (p *Peers) UsesDriver(driver string) bool { return p.tunnel.UsesDriver(driver) }

// Stale is how long what a cluster said counts after it was heard last.
func (p *Peers) Stale() time.Duration { return p.config.Stale }

// Links gives what is known of all links.
func (p *Peers) Links() health.Snapshot { return p.prober.Snapshot() }

// BlackHoles gives the remote gateways to which packets vanish for their size.
func (p *Peers) BlackHoles() map[string]pathmtu.LinkMTU {
	out := map[string]pathmtu.LinkMTU{}
	for _, path := range p.finder.Snapshot() {
		if path.State != pathmtu.OK && path.State != pathmtu.Unknown {
			out[path.Peer] = path
		}
	}
	return out
}

// Migrations tells of the tunnels that are being changed, by remote gateway.
func (p *Peers) Migrations() map[string]migration.Progress { return p.tunnel.Progress() }

// EndpointReason says where a remote gateway is reached, which is the address and port given, and
// why there.
func (p *Peers) EndpointReason(gateway, at string) string { return p.endpoints.reason(gateway, at) }

// States says which feeds are lost.
func (p *Peers) States() []status.InputState {
	p.mu.Lock()
	err := p.feedErr
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

// StateFiles names what Peers leave in the state folder.
func StateFiles() []string { return []string{"ages.json", "endpoints.json", "tunnels.json"} }
