// Package peer exchanges messages with other agents. It probes links, path MTUs and direct paths,
// exchanges the state of exports, selects endpoints of remote gateways, and migrates pairs of
// gateways between tunnels. Observe returns the results. SetSpec, ApplyStep and ApplyRound apply
// the decisions of package round.
package peer

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
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
	"hawser.dev/hawser/nodeagent/peer/direct"
	"hawser.dev/hawser/nodeagent/peer/feed"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/peer/pathmtu"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
)

// Config is the fixed configuration of Peers. Its functions must not block, except TunnelCounters
// and RemotePackets.
type Config struct {
	Cluster      string
	StateDir     string
	Stale        time.Duration // how long state of a lost feed counts; default feed.DefaultStaleAfter
	Log          *slog.Logger
	TriggerRound func() // requests a converge round
	Urgent       func() // a link may have changed
	Resolve      func() // requests to resolve the names of endpoints again
	// TunnelCounters reads counters of tunnels from the kernel.
	TunnelCounters func(context.Context, []desired.Tunnel) ([]kernel.TunnelCounters, error)
	// Secured returns the state of IPsec connections.
	Secured func() map[string]ipsec.State
	// RemotePackets reads how many packets this node sent to other clusters, by the first
	// address of each prefix. It may block.
	RemotePackets func(context.Context) (map[netip.Addr]uint64, error)
	// NodeDeviceExists reports that the previous agent left desired.NodeDevice. Without it, the
	// kernel has no rules for direct packets, such as after a reboot.
	NodeDeviceExists bool
}

// saveAgesInterval is the minimum time between two writes of the ages of exports.
const saveAgesInterval = 5 * time.Second

// Peers runs all protocols with other agents. It is safe for concurrent use, except SetSpec,
// ApplyStep and ApplyRound, which one goroutine calls.
type Peers struct {
	config           Config
	prober           *health.Prober
	server           *feed.Server
	client           *feed.Client
	firstSeenFile    *statefile.File[map[string]map[string]time.Time]
	finder           *pathmtu.Finder
	endpointSelector *endpointSelector
	negotiator       *migration.Negotiator
	transport        *transport.Transport
	traffic          *trafficMeter
	direct           *direct.Checker
	directFile       *statefile.File[[]direct.Saved]

	mu          sync.Mutex
	spec        *round.PeerSpec
	links       map[string]model.Path
	connected   map[health.GatewayID]bool // links that are up
	pathMTUSpec round.PathMTUSpec
	feedSpec    round.FeedSpec
	feedErr     error              // why feeds could not be configured
	published   model.ClusterState // to other clusters
}

// New restores the state that the previous agent saved. It sends nothing before Run.
func New(config Config) *Peers {
	config.Stale = cmp.Or(config.Stale, feed.DefaultStaleAfter)
	p := &Peers{
		config:        config,
		firstSeenFile: statefile.New[map[string]map[string]time.Time](config.StateDir, "ages.json"),
		directFile:    statefile.New[[]direct.Saved](config.StateDir, "direct.json"),
	}
	feedConfig := feed.Config{Log: config.Log, Timing: feed.Timing{StaleAfter: config.Stale}}
	p.server = feed.NewServer(feedConfig)
	feedConfig.OnChange, feedConfig.OnFirstSeen = p.updateRelay, p.firstSeenFile.MarkDirty
	p.client = feed.NewClient(feedConfig)
	p.client.RestoreFirstSeen(p.firstSeenFile.LoadOrZero(config.Log))
	wakeTransport, refreshEndpoints := trigger.New(), trigger.New()
	p.prober = health.New(health.Config{
		Cluster: config.Cluster, Port: desired.ProbePort, Wake: wakeTransport, OnChange: func() { config.Urgent(); refreshEndpoints.Fire() },
	})
	p.finder = pathmtu.New(pathmtu.Config{Port: desired.ProbePort, Log: config.Log, Wake: wakeTransport, OnChange: config.Urgent})
	tunnelFile := statefile.New[map[string]migration.Saved](config.StateDir, "tunnels.json")
	p.negotiator = migration.New(migration.Config{
		Port: desired.ProbePort, Log: config.Log, Wake: wakeTransport,
		OnChange: config.TriggerRound,
		Restored: tunnelFile.LoadOrZero(config.Log), Save: tunnelFile.Save,
	})
	p.endpointSelector = newEndpointSelector(
		config, p.prober, p.negotiator, wakeTransport, refreshEndpoints)
	p.traffic = &trafficMeter{read: config.RemotePackets, onChange: p.setTraffic, log: config.Log, wake: trigger.New()}
	var restored []direct.Saved
	if config.NodeDeviceExists {
		restored = p.directFile.LoadOrZero(config.Log)
	}
	p.direct = direct.New(direct.Config{
		Port: desired.ProbePort, Log: config.Log, Wake: wakeTransport,
		OnChange: func() { config.Urgent(); config.TriggerRound() },
		OnState:  p.directFile.MarkDirty, Restored: restored,
	})
	p.transport = transport.New(transport.Config{
		Port: desired.ProbePort, Log: config.Log, Wake: wakeTransport,
		Protocols: []transport.Protocol{
			p.prober, p.negotiator, p.finder, p.endpointSelector, p.direct,
		},
	})
	return p
}

// updateRelay publishes the states of other clusters to the nodes of this cluster.
func (p *Peers) updateRelay() {
	if err := p.server.PublishRelay(p.client.Relay()); err != nil {
		p.config.Log.Error("cannot publish relayed state", "err", err)
	}
	p.config.TriggerRound()
	p.config.Urgent() // a link of a transit cluster may be down
}

// Run exchanges messages until ctx is done.
func (p *Peers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		p.transport.Run, p.server.Run, p.client.Run, p.negotiator.Run, p.endpointSelector.run, p.traffic.run,
	} {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		p.firstSeenFile.Run(ctx, saveAgesInterval, p.client.FirstSeen, p.config.Log)
		return nil
	})
	group.Go(func() error {
		p.directFile.Run(ctx, 0, p.direct.Saved, p.config.Log)
		return nil
	})
	return group.Wait()
}

// Observe returns the current state of all protocols.
func (p *Peers) Observe() round.PeerStatus {
	out := p.ObserveLinks()
	p.mu.Lock()
	out.Spec = p.spec
	p.mu.Unlock()
	out.Tunnels = p.negotiator.Tunnels()
	out.RemoteEndpoints, out.ObservedAddrs = p.endpointSelector.snapshot()
	return out
}

// ObserveLinks returns the part of Observe that the selection of paths needs. It disconnects feeds
// of gateways whose links failed, and reconnects feeds of gateways whose links came up.
func (p *Peers) ObserveLinks() round.PeerStatus {
	links := p.prober.Snapshot()
	// A feed may wait for packets that were lost while its link was down.
	up := make(map[health.GatewayID]bool, len(links.Links))
	for _, l := range links.Links {
		if l.State() == status.Connected {
			up[l.Target.Peer] = true
		}
	}
	p.mu.Lock()
	before := p.connected
	p.connected = up
	p.mu.Unlock()
	for peer := range up {
		if !before[peer] {
			p.client.Reconnect(peer.Cluster, peer.Gateway)
		}
	}
	for peer := range before {
		if !up[peer] {
			p.client.Disconnect(peer.Cluster, peer.Gateway)
		}
	}
	pathMTUs := map[string]int{} // below the MTU of the tunnel
	for _, path := range p.finder.Snapshot() {
		if path.State == pathmtu.BlackHole && path.PathMTU < path.MTU {
			pathMTUs[path.Peer] = path.PathMTU
		}
	}
	return round.PeerStatus{Links: links, ClusterStates: p.client.Snapshot(), PathMTUs: pathMTUs, Direct: p.direct.Snapshot()}
}

// SetSpec sets the targets of all protocols.
func (p *Peers) SetSpec(spec *round.PeerSpec) {
	p.mu.Lock()
	before := p.spec
	p.spec = spec
	p.mu.Unlock()
	if probing := spec.Probing; before == nil || !reflect.DeepEqual(before.Probing, probing) {
		p.prober.SetGateway(probing.Gateway)
		p.prober.SetNodes(probing.Others)
		p.prober.SetSettings(probing.Settings)
		p.prober.SetListen(probing.Listen)
		p.prober.SetTargets(probing.Targets)
	}
	switch {
	case spec.Probing.Gateway != "":
		p.traffic.setInterval(spec.Probing.Settings.Interval)
	case len(spec.Direct.Pairs) > 0:
		p.traffic.setInterval(spec.Direct.Interval)
	default:
		p.traffic.setInterval(0)
	}
	p.direct.Set(spec.Direct, time.Now())
	p.negotiator.Set(spec.OwnGateway(p.config.Cluster), spec.Pairs)
	p.endpointSelector.setRemotes(spec.Remotes)
}

// ApplyStep applies the effects of a step to paths and published state.
func (p *Peers) ApplyStep(e round.Effects) {
	p.setActiveLinks(e.Links)
	p.publish(func(state *model.ClusterState) bool {
		same := state.Shape == e.Shape && reflect.DeepEqual(state.Transit, e.AnnounceTransit)
		state.Shape, state.Transit = e.Shape, e.AnnounceTransit
		return !same && state.Cluster != ""
	})
	p.Publish(e.AnnounceExports)
}

// ApplyRound applies the effects of a complete round to feeds, endpoints and path MTUs.
func (p *Peers) ApplyRound(e round.Effects) {
	p.setFeeds(e.Feeds, e.FeedsErr)
	p.publish(func(state *model.ClusterState) bool {
		same := reflect.DeepEqual(state.Endpoints, e.AnnounceEndpoints)
		state.Endpoints = e.AnnounceEndpoints
		return !same && state.Cluster != ""
	})
	p.mu.Lock()
	same := e.PathMTU.Self == p.pathMTUSpec.Self && slices.Equal(e.PathMTU.Listen, p.pathMTUSpec.Listen) && slices.Equal(e.PathMTU.Links, p.pathMTUSpec.Links)
	p.pathMTUSpec = e.PathMTU
	p.mu.Unlock()
	if !same {
		p.finder.Set(e.PathMTU.Self, e.PathMTU.Listen, e.PathMTU.Links)
	}
}

// setTraffic sets the neighbours to which this gateway forwards packets. On another node, they are
// the neighbours whose packets the node sends to a gateway directly.
func (p *Peers) setTraffic(neighbors map[string]bool) {
	p.prober.SetTraffic(neighbors)
	p.finder.SetTraffic(neighbors)
	p.direct.SetTraffic(len(neighbors) > 0, time.Now())
}

// setActiveLinks sets the active link to each neighbour. The prober reports it to the peers.
func (p *Peers) setActiveLinks(links map[string]model.Path) {
	p.mu.Lock()
	changed := !maps.Equal(links, p.links)
	p.links = links
	p.mu.Unlock()
	if changed {
		p.prober.SetActiveLinks(links)
	}
}

func (p *Peers) setFeeds(feeds round.FeedSpec, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.feedErr = err
	if err != nil || reflect.DeepEqual(feeds, p.feedSpec) {
		return
	}
	p.feedSpec = feeds
	p.server.SetIdentity(feeds.Identity)
	p.server.SetPeers(feeds.Allow)
	p.server.SetNodes(feeds.Nodes)
	p.server.SetListen(feeds.Listen)
	p.client.SetIdentity(feeds.Identity)
	p.client.SetPeers(feeds.Subscribe, feeds.Clusters)
}

// Publish publishes the state of this cluster's exports to other clusters; nil = unchanged.
func (p *Peers) Publish(exports *model.ClusterState) {
	if exports == nil {
		return
	}
	p.publish(func(state *model.ClusterState) bool {
		state.Cluster, state.Exports = exports.Cluster, exports.Exports
		return true
	})
}

// publish publishes the state of this cluster to other clusters if change reports a difference.
func (p *Peers) publish(change func(*model.ClusterState) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !change(&p.published) {
		return
	}
	if err := p.server.Publish(p.published); err != nil {
		p.config.Log.Error("cannot publish cluster state", "err", err)
	}
}

// SetProjection sets the input of endpoint probes and of the traffic meter.
func (p *Peers) SetProjection(in projection.Input, n *round.DesiredNode) {
	p.endpointSelector.setProjection(in, n)
	p.traffic.setPrefixes(prefixNeighbors(in))
}

// SetInstalled sets the tunnels in the kernel, by remote gateway; nil = unknown.
func (p *Peers) SetInstalled(tunnels map[string]migration.Installed) {
	if tunnels != nil {
		p.negotiator.SetInstalled(tunnels)
	}
}

// SetDirectSenders sets the hardware addresses from which the kernel accepts direct packets; nil =
// unknown.
func (p *Peers) SetDirectSenders(macs map[string]bool) {
	if macs != nil {
		p.direct.SetAcceptedMACs(macs)
	}
}

// MissingDirectTests returns the number of IPv4 test packets of direct pairs that have not returned
// since the start.
func (p *Peers) MissingDirectTests() int { return p.direct.MissingIPv4() }

// SetReady, SetDraining and SetAcceptsTransit call the health.Prober.
func (p *Peers) SetReady(ready bool)            { p.prober.SetReady(ready) }
func (p *Peers) SetDraining(draining bool)      { p.prober.SetDraining(draining) }
func (p *Peers) SetAcceptsTransit(accepts bool) { p.prober.SetAcceptsTransit(accepts) }

// UsesDriver reports whether any pair has a tunnel of a driver.
func (p *Peers) UsesDriver(driver string) bool { return p.negotiator.UsesDriver(driver) }

// Stale returns how long the state of a cluster counts after its feed is lost.
func (p *Peers) Stale() time.Duration { return p.config.Stale }

// Links returns the state of all links.
func (p *Peers) Links() health.Snapshot { return p.prober.Snapshot() }

// BlackHoles returns the path MTU of remote gateways to which large packets are lost.
func (p *Peers) BlackHoles() map[string]pathmtu.LinkMTU {
	out := map[string]pathmtu.LinkMTU{}
	for _, path := range p.finder.Snapshot() {
		if path.State != pathmtu.OK && path.State != pathmtu.Unknown {
			out[path.Peer] = path
		}
	}
	return out
}

// Migrations returns the progress of migrations by remote gateway.
func (p *Peers) Migrations() map[string]migration.Progress { return p.negotiator.Progress() }

// EndpointReason describes for users why a remote gateway is reached at an address and port.
func (p *Peers) EndpointReason(gateway, addr string) string {
	return p.endpointSelector.reason(gateway, addr)
}

// States returns the state of each feed.
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

// StateFiles returns the names of the files that Peers writes to the state directory.
func StateFiles() []string {
	return []string{"ages.json", "direct.json", "endpoints.json", "tunnels.json"}
}
