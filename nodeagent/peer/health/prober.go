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

// Prober probes its targets and answers probes, as a machine of a transport.Transport. Its methods
// may be called from any goroutine.
type Prober struct {
	config Config
	clock  func() time.Time
	wake   trigger.Trigger // as in Config

	mu       sync.Mutex
	gateway  string
	self     uint64 // hash of the own name
	settings Settings
	listen   []Listen
	targets  map[Target]*target
	sorted   []*target           // by peer, source and address
	tunnels  []*target           // those of other clusters, by hash
	byPeer   map[GatewayID][]int // indexes in sorted; replaced, never changed
	byFlow   map[flow]*target
	schedule timerqueue.Queue[*target]
	until    time.Time // when the schedule is looked at next
	moved    bool      // targets or listen changed, so sockets may have to
	started  bool      // a first set of targets was given
	stats    Stats
	pokes    transport.RateLimiter
	asks     transport.RateLimiter                 // those pokes that only ask
	nodes    map[netip.Addr]*transport.RateLimiter // answers to the nodes of this cluster, by address
	// strangers are all others that probe.
	strangers transport.RateLimiter

	activeLinks map[string]model.Path
	ready       bool
	draining    bool
	takes       bool // this gateway takes what clusters passed on
	mates       isolationDetector
	stretch     int       // intervals between two probes of a standby link
	stale       bool      // what others were told of this gateway may have changed
	announced   time.Time // when they were told last
	reach       reachList
	askers      askers
	offPaths    map[uint64]offPath // by nonce
}

// New makes a prober without targets.
func New(config Config) *Prober {
	return &Prober{
		config:   config,
		clock:    time.Now,
		gateway:  config.Gateway,
		self:     GatewayID{Cluster: config.Cluster, Gateway: config.Gateway}.hash(),
		settings: config.Settings.sane(),
		wake:     config.Wake,
		targets:  map[Target]*target{},
		byFlow:   map[flow]*target{},
		stretch:  1,
		reach:    newReachList(nil),
		askers:   askers{},
		offPaths: map[uint64]offPath{},
	}
}

// outgoing is one packet on its way.
type outgoing = socket.Datagram

// flow is how packets find their target: the socket and the sender's address.
type flow struct {
	at   Listen
	from netip.Addr
}

func (t Target) place() Listen { return Listen{Addr: t.Source, Device: t.Device} }

func (t Target) flow() flow { return flow{at: t.place(), from: t.Addr} }

// SetTargets replaces the set of targets. Those that stay keep their state.
func (p *Prober) SetTargets(targets []Target) {
	p.change(func(now time.Time) bool {
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
			p.mates.leaving = p.drainingSiblings()
		}
		return changed
	})
}

// sort puts the targets in the orders that others need.
func (p *Prober) sort() {
	p.moved = true
	p.sorted = slices.SortedFunc(maps.Values(p.targets), compareTargets)
	p.tunnels, p.byPeer = nil, make(map[GatewayID][]int, len(p.sorted))
	for i, t := range p.sorted {
		p.byPeer[t.Peer] = append(p.byPeer[t.Peer], i)
		if t.isRemote() {
			p.tunnels = append(p.tunnels, t)
		}
	}
	slices.SortFunc(p.tunnels, func(a, b *target) int { return cmp.Compare(a.hash, b.hash) })
}

func (p *Prober) add(want Target, now time.Time) {
	// Of a gateway whose tunnels did not stand when its agent started, none has carried anything.
	t := newTarget(want, now, !p.started && (p.ready || want.Device != ""))
	t.next = now.Add(rand.N(max(p.settings.Interval/4, 1)))
	t.plan(now, p.settings)
	t.sentAdvert = p.advertFor(t, now)
	t.shown = p.shownOf(t, now)
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

// change runs a change of what the prober should do or say, under the mutex.
// The change reports whether links may have other ranks now.
func (p *Prober) change(do func(now time.Time) bool) {
	p.mu.Lock()
	changed := do(p.clock())
	p.stale = true
	p.mu.Unlock()
	p.wake.Fire()
	if changed {
		p.notify()
	}
}

// SetGateway changes the name of the gateway on this node; empty = it is none.
func (p *Prober) SetGateway(gateway string) {
	p.change(func(time.Time) bool {
		changed := p.gateway != gateway
		p.gateway, p.self = gateway, GatewayID{Cluster: p.config.Cluster, Gateway: gateway}.hash()
		return changed
	})
}

// SetNodes says at which addresses the other nodes of this cluster are, for each of
// them. A gateway that hears none of them any more tells others not to choose it;
// when there are none it never does.
func (p *Prober) SetNodes(others [][]netip.Addr) {
	p.change(func(time.Time) bool {
		nodes := map[netip.Addr]*transport.RateLimiter{}
		for _, addrs := range others {
			for _, addr := range addrs {
				if nodes[addr] = p.nodes[addr]; nodes[addr] == nil {
					nodes[addr] = &transport.RateLimiter{}
				}
			}
		}
		p.nodes = nodes
		return p.mates.expect(len(others))
	})
}

// SetListen replaces the places where probes are answered.
func (p *Prober) SetListen(listen []Listen) {
	p.change(func(time.Time) bool {
		p.moved = p.moved || !slices.Equal(p.listen, listen)
		p.listen = slices.Clone(listen)
		return false
	})
}

// SetSettings changes interval and misses at once.
func (p *Prober) SetSettings(settings Settings) {
	p.change(func(now time.Time) bool {
		p.settings = settings.sane()
		for _, t := range p.sorted {
			if soon := now.Add(p.settings.Interval); soon.Before(t.next) {
				t.next = soon
			}
			p.replan(t, now)
		}
		return false
	})
}

// sane keeps settings that nobody should set from making a busy loop.
func (s Settings) sane() Settings {
	return Settings{Interval: max(s.Interval, time.Millisecond), Misses: max(s.Misses, 1)}
}

// SetReady says whether this node does what it should as a gateway, before the first set of
// targets whether tunnels stand that an agent before left. Until then it tells others not to
// choose it unless there is nothing better.
func (p *Prober) SetReady(ready bool) {
	p.change(func(time.Time) bool {
		changed := p.ready != ready
		p.ready = ready
		return changed
	})
}

// SetDraining tells others to leave this gateway as soon as they can.
func (p *Prober) SetDraining(draining bool) {
	p.change(func(time.Time) bool {
		changed := p.draining != draining
		p.draining = draining
		return changed
	})
}

// SetAcceptsTransit says whether this gateway takes what clusters pass on to each other.
func (p *Prober) SetAcceptsTransit(takes bool) {
	p.change(func(time.Time) bool {
		changed := p.takes != takes
		p.takes = takes
		return changed
	})
}

// SetActiveLinks says which link to each remote cluster this node uses now. The links of
// this gateway among them are told to the other end, and probed at the full rate.
func (p *Prober) SetActiveLinks(use map[string]model.Path) {
	p.mu.Lock()
	same := maps.Equal(p.activeLinks, use)
	p.mu.Unlock()
	if same {
		return
	}
	p.change(func(now time.Time) bool {
		p.activeLinks = maps.Clone(use)
		for _, t := range p.sorted {
			p.probeSooner(t, now)
		}
		return false
	})
}

// Snapshot gives a copy of what is known now.
func (p *Prober) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, own := p.clock(), p.condition()
	own.takes = p.takes
	links := make([]Link, len(p.sorted))
	for i, t := range p.sorted {
		links[i] = t.link(now, p.settings, own)
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
