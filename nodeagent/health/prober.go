package health

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/project"
)

// Prober probes its targets and answers probes. Its methods may be called from
// any goroutine, before, during and after Run.
type Prober struct {
	config Config
	origin time.Time     // of the timestamps in probes
	wake   chan struct{} // the schedule or the sockets changed

	mu       sync.Mutex
	gateway  string
	settings Settings
	listen   []Listen
	targets  map[Target]*target
	byWay    map[way]*target
	schedule schedule
	bucket   bucket
	use      map[string]project.Path
	ready    bool
	draining bool
	moved    bool // targets or listen changed, so sockets may have to
	started  bool // a first set of targets was given
	reach    reachList
	stats    Stats
}

// New makes a prober without targets.
func New(config Config) *Prober {
	return &Prober{
		config:   config,
		gateway:  config.Gateway,
		settings: config.Settings,
		wake:     make(chan struct{}, 1),
		targets:  map[Target]*target{},
		byWay:    map[way]*target{},
		origin:   time.Now(),
		reach:    newReachList(nil),
	}
}

// way is how replies find their target: the socket and the sender's address.
type way struct {
	at   Listen
	from netip.Addr
}

func (t Target) way() way {
	return way{at: Listen{Addr: t.Source, Device: t.Device}, from: t.Addr}
}

// SetTargets replaces the set of targets. Those that stay keep their state.
func (p *Prober) SetTargets(targets []Target) {
	p.mu.Lock()
	now, changed := time.Now(), false
	wanted := make(map[Target]bool, len(targets))
	for _, want := range targets {
		wanted[want] = true
		if p.targets[want] == nil {
			t := newTarget(want, now, !p.started)
			t.due = now.Add(rand.N(max(p.settings.Interval/4, 1)))
			p.targets[want], p.byWay[want.way()] = t, t
			p.schedule.push(t)
			changed = true
		}
	}
	for have, t := range p.targets {
		if !wanted[have] {
			delete(p.targets, have)
			if p.byWay[have.way()] == t {
				delete(p.byWay, have.way())
			}
			p.schedule.remove(t)
			changed = true
		}
	}
	p.started = p.started || len(targets) > 0
	p.moved = p.moved || changed
	p.updateReach()
	p.mu.Unlock()
	if changed {
		p.poke()
		p.notify()
	}
}

// SetGateway changes the name of the gateway on this node; empty = it is none.
func (p *Prober) SetGateway(gateway string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gateway = gateway
}

// SetListen replaces the places where probes are answered.
func (p *Prober) SetListen(listen []Listen) {
	p.mu.Lock()
	p.moved = p.moved || !slices.Equal(p.listen, listen)
	p.listen = slices.Clone(listen)
	p.mu.Unlock()
	p.poke()
}

// SetSettings changes interval and misses from the next probe of each target on.
func (p *Prober) SetSettings(settings Settings) {
	p.mu.Lock()
	p.settings = settings
	p.mu.Unlock()
	p.poke()
}

// SetReady says whether this node does what it should as a gateway. Until then
// it tells others not to choose it unless there is nothing better.
func (p *Prober) SetReady(ready bool) {
	p.mu.Lock()
	p.ready = ready
	p.mu.Unlock()
	p.poke()
}

// SetDraining tells others to leave this gateway as soon as they can.
func (p *Prober) SetDraining(draining bool) {
	p.mu.Lock()
	p.draining = draining
	p.mu.Unlock()
	p.poke()
}

// SetUse says which link to each remote cluster this node uses now. The links of
// this gateway among them are told to the other end, and probed at the full rate.
func (p *Prober) SetUse(use map[string]project.Path) {
	p.mu.Lock()
	p.use = maps.Clone(use)
	p.mu.Unlock()
	p.poke()
}

// uses reports whether this node uses the own link to a remote gateway. The
// mutex is held.
func (p *Prober) uses(remote Peer) bool {
	path, used := p.use[remote.Cluster]
	return used && p.gateway != "" && path.Local == p.gateway && path.Remote == remote.Gateway
}

// Snapshot gives a copy of what is known now.
func (p *Prober) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	links := make([]Link, 0, len(p.targets))
	for _, t := range p.targets {
		link := t.link(now, p.deadline())
		link.Standby = t.Device == "" && !p.uses(t.Peer)
		links = append(links, link)
	}
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(
			cmp.Compare(a.Target.Peer.Cluster, b.Target.Peer.Cluster),
			cmp.Compare(a.Target.Peer.Gateway, b.Target.Peer.Gateway),
			a.Target.Source.Compare(b.Target.Source),
			a.Target.Addr.Compare(b.Target.Addr),
			cmp.Compare(a.Target.Device, b.Target.Device),
		)
	})
	return newSnapshot(Peer{Cluster: p.config.Cluster, Gateway: p.gateway}, links, p.stats)
}

// Run probes and answers until ctx ends, and returns when all its goroutines have.
func (p *Prober) Run(ctx context.Context) error {
	s := &sockets{prober: p, open: map[Listen]*conn{}}
	defer s.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		s.update(time.Now())
		probes, wait := p.takeDue(time.Now())
		s.send(probes)
		timer.Reset(wait)
	}
}

// deadline is how long a probe may go without an answer before it counts as lost.
func (p *Prober) deadline() time.Duration {
	return p.settings.Interval * time.Duration(max(p.settings.Misses, 1))
}

func (p *Prober) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Prober) notify() {
	if p.config.OnChange != nil {
		p.config.OnChange()
	}
}
