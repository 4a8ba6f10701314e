package health

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/transport"
)

// Prober probes its targets and replies to probes. It implements transport.Protocol and is safe for
// concurrent use.
type Prober struct {
	config Config
	clock  func() time.Time
	wake   trigger.Trigger // as in Config

	mu          sync.Mutex
	gateway     string
	self        uint64 // hash of the name of this gateway or node
	settings    Settings
	listen      []Listen
	targets     map[Target]*target
	sorted      []*target           // by peer, source and address
	tunnels     []*target           // targets in other clusters, by hash
	byPeer      map[GatewayID][]int // indexes in sorted; never changed in place
	byFlow      map[flow]*target
	clusterOf   map[uint64]string // of a remote gateway, by its hash
	schedule    timerqueue.Queue[*target]
	nextTick    time.Time // next check of the schedule
	rebind      bool      // targets or listen changed; sockets may have to change
	started     bool      // SetTargets was called
	startedAt   time.Time // of the first target
	stats       Stats
	updateLimit transport.RateLimiter
	verifyLimit transport.RateLimiter                 // triggered updates that only verify a peer
	nodes       map[netip.Addr]*transport.RateLimiter // replies to nodes of this cluster, by address
	// unknownSenderLimit limits the replies to all other senders together.
	unknownSenderLimit transport.RateLimiter

	activeLinks    map[string]model.Path
	traffic        map[string]bool // as in SetTraffic
	busy           map[string]bool // remote clusters whose links are probed at the full rate
	ready          bool
	draining       bool
	acceptsTransit bool // this gateway accepts transit traffic
	isolation      isolationDetector
	idleIntervals  int       // intervals between two probes of an idle link
	dirty          bool      // the published state may be outdated
	publishedAt    time.Time // of the last publication
	linkStates     linkStateList
	subscribers    subscribers
	offPaths       map[uint64]offPath // by nonce
}

// New returns a prober without targets.
func New(config Config) *Prober {
	return &Prober{
		config:        config,
		clock:         time.Now,
		gateway:       config.Gateway,
		self:          GatewayID{Cluster: config.Cluster, Gateway: config.Gateway}.hash(),
		settings:      config.Settings.bounded(),
		wake:          config.Wake,
		targets:       map[Target]*target{},
		byFlow:        map[flow]*target{},
		idleIntervals: 1,
		linkStates:    newLinkStateList(nil),
		subscribers:   subscribers{},
		offPaths:      map[uint64]offPath{},
	}
}

// outgoing is a packet to send.
type outgoing = socket.Datagram

// flow identifies the target of a packet by its socket and its sender address.
type flow struct {
	local  Listen
	remote netip.Addr
}

func (t Target) bind() Listen { return Listen{Addr: t.Source, Device: t.Device} }

func (t Target) flow() flow { return flow{local: t.bind(), remote: t.Addr} }

// SetTargets replaces the targets. Targets in both sets keep their state.
func (p *Prober) SetTargets(targets []Target) {
	p.update(func(now time.Time) bool {
		changed := false
		wanted := make(map[Target]bool, len(targets))
		for _, want := range targets {
			wanted[want] = true
			if p.targets[want] == nil {
				p.add(want, now)
				changed = true
			}
		}
		for have, t := range p.targets {
			if !wanted[have] {
				p.remove(t)
				changed = true
			}
		}
		p.started = p.started || len(targets) > 0
		if changed {
			p.sort()
			p.isolation.draining = p.drainingSiblings()
		}
		return changed
	})
}

// sort builds the sorted lists and indexes of the targets.
func (p *Prober) sort() {
	p.rebind = true
	p.sorted = slices.SortedFunc(maps.Values(p.targets), compareTargets)
	p.tunnels, p.byPeer, p.clusterOf = nil, make(map[GatewayID][]int, len(p.sorted)), map[uint64]string{}
	for i, t := range p.sorted {
		p.byPeer[t.Peer] = append(p.byPeer[t.Peer], i)
		if t.isRemote() {
			p.tunnels = append(p.tunnels, t)
			p.clusterOf[t.hash] = t.Peer.Cluster
		}
	}
	slices.SortFunc(p.tunnels, func(a, b *target) int { return cmp.Compare(a.hash, b.hash) })
}

func (p *Prober) add(want Target, now time.Time) {
	// Tunnels that did not exist when the agent started carried no traffic.
	t := newTarget(want, now, !p.started && (p.ready || want.Device != ""))
	if p.startedAt.IsZero() {
		p.startedAt = now
	}
	t.next = now.Add(rand.N(max(p.settings.Interval/4, 1)))
	t.setWake(now, p.settings)
	t.sentAdvert = p.advertFor(t, now)
	t.published = p.publishedStateOf(t, now)
	p.targets[want], p.byFlow[want.flow()] = t, t
	p.schedule.Schedule(t, t.wake)
}

func (p *Prober) remove(t *target) {
	delete(p.targets, t.Target)
	if p.byFlow[t.flow()] == t {
		delete(p.byFlow, t.flow())
	}
	p.schedule.Remove(t)
}

func compareTargets(a, b *target) int {
	return cmp.Or(
		cmp.Compare(a.Peer.Cluster, b.Peer.Cluster),
		cmp.Compare(a.Peer.Gateway, b.Peer.Gateway),
		a.Source.Compare(b.Source),
		a.Addr.Compare(b.Addr),
		cmp.Compare(a.Device, b.Device),
	)
}

// update runs do under the mutex. do reports whether ranks of links may have changed.
func (p *Prober) update(do func(now time.Time) bool) {
	p.mu.Lock()
	changed := do(p.clock())
	p.dirty = true
	p.mu.Unlock()
	p.wake.Fire()
	if changed {
		p.notify()
	}
}

// SetGateway sets the gateway on this node; empty = none.
func (p *Prober) SetGateway(gateway string) {
	p.update(func(time.Time) bool {
		changed := p.gateway != gateway
		p.gateway, p.self = gateway, GatewayID{Cluster: p.config.Cluster, Gateway: gateway}.hash()
		return changed
	})
}

// SetNodes sets the addresses of each other node of this cluster. A gateway that receives no packet
// from these nodes reports that it is isolated. Without other nodes it is never isolated.
func (p *Prober) SetNodes(others [][]netip.Addr) {
	p.update(func(time.Time) bool {
		nodes := map[netip.Addr]*transport.RateLimiter{}
		for _, addrs := range others {
			for _, addr := range addrs {
				if nodes[addr] = p.nodes[addr]; nodes[addr] == nil {
					nodes[addr] = &transport.RateLimiter{}
				}
			}
		}
		p.nodes = nodes
		return p.isolation.setOtherNodes(len(others))
	})
}

// SetListen replaces the addresses at which the prober replies.
func (p *Prober) SetListen(listen []Listen) {
	p.update(func(time.Time) bool {
		p.rebind = p.rebind || !slices.Equal(p.listen, listen)
		p.listen = slices.Clone(listen)
		return false
	})
}

// SetSettings sets the interval and misses.
func (p *Prober) SetSettings(settings Settings) {
	p.update(func(now time.Time) bool {
		p.settings = settings.bounded()
		for _, t := range p.sorted {
			if due := now.Add(p.settings.Interval); due.Before(t.next) {
				t.next = due
			}
			p.reschedule(t, now)
		}
		return false
	})
}

// bounded returns the settings within bounds that prevent a busy loop.
func (s Settings) bounded() Settings {
	return Settings{Interval: max(s.Interval, time.Millisecond), Misses: max(s.Misses, 1)}
}

// SetReady sets whether this node forwards traffic as a gateway. Before the first SetTargets, true
// means that tunnels of the previous agent exist. A gateway that is not ready ranks its links
// Draining.
func (p *Prober) SetReady(ready bool) {
	p.update(func(time.Time) bool {
		changed := p.ready != ready
		p.ready = ready
		return changed
	})
}

// SetDraining sets whether this gateway drains.
func (p *Prober) SetDraining(draining bool) {
	p.update(func(time.Time) bool {
		changed := p.draining != draining
		p.draining = draining
		return changed
	})
}

// SetAcceptsTransit sets whether this gateway accepts transit traffic.
func (p *Prober) SetAcceptsTransit(acceptsTransit bool) {
	p.update(func(time.Time) bool {
		changed := p.acceptsTransit != acceptsTransit
		p.acceptsTransit = acceptsTransit
		return changed
	})
}

// SetActiveLinks sets the link to each remote cluster that this node uses. The prober reports to a
// peer whether its link is in use.
func (p *Prober) SetActiveLinks(use map[string]model.Path) {
	p.mu.Lock()
	same := maps.Equal(p.activeLinks, use)
	p.mu.Unlock()
	if same {
		return
	}
	p.update(func(now time.Time) bool {
		p.activeLinks = maps.Clone(use)
		return false
	})
}

// SetTraffic sets the neighbouring clusters to which, or through which, this gateway recently
// forwarded packets. This gateway, the remote gateways and the siblings probe their links at the
// full rate.
func (p *Prober) SetTraffic(clusters map[string]bool) {
	p.update(func(time.Time) bool {
		p.traffic = maps.Clone(clusters)
		return false
	})
}

// Snapshot returns a copy of the current state.
func (p *Prober) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, local := p.clock(), p.condition()
	local.acceptsTransit = p.acceptsTransit
	links := make([]Link, len(p.sorted))
	for i, t := range p.sorted {
		links[i] = t.link(now, p.settings, local)
		links[i].Standby = t.isRemote() && !p.inUse(t)
	}
	return Snapshot{
		Links: links, Stats: p.stats, self: GatewayID{Cluster: p.config.Cluster, Gateway: p.gateway}, byPeer: p.byPeer,
	}
}

func (p *Prober) notify() {
	if p.config.OnChange != nil {
		p.config.OnChange()
	}
}
