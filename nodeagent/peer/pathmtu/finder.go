package pathmtu

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Limits of the work.
const (
	standbyRate     = 50                    // tries per second of all standby links together
	maxTickInterval = time.Second           // wait if no try is due
	coalesceTime    = 20 * time.Millisecond // tries within this time run together
	replyRate       = 5000                  // replies per second, and in one burst
)

// linkKey identifies a link.
type linkKey struct{ source, addr netip.Addr }

// Finder finds the path MTU of a set of links. It implements transport.Protocol and is safe for
// concurrent use.
type Finder struct {
	config Config

	mu         sync.Mutex
	self       uint64 // ID of this gateway in messages
	listen     map[netip.Addr]bool
	links      map[linkKey]*linkState
	queue      timerqueue.Queue[*linkState]
	nextTick   time.Time             // due time of the queue, as of the last tick
	rebind     bool                  // the sockets may have to change
	gateways   map[netip.Addr]uint64 // gateways that get replies, with their IDs in messages
	traffic    map[string]bool       // as in SetTraffic
	stats      Stats
	replyLimit transport.RateLimiter
}

// New returns a Finder without links.
func New(config Config) *Finder {
	return &Finder{config: config, listen: map[netip.Addr]bool{}, links: map[linkKey]*linkState{}, gateways: map[netip.Addr]uint64{}}
}

// Set sets the name of this gateway (cluster/gateway), its tunnel addresses and its links. The
// gateway replies to probes on these addresses. A link keeps its state unless its addresses or its
// MTU changed.
func (f *Finder) Set(self string, listen []netip.Addr, links []Link) {
	f.mu.Lock()
	now := time.Now()
	f.self, f.rebind = wire.HashID(self), true
	f.listen, f.gateways = map[netip.Addr]bool{}, map[netip.Addr]uint64{}
	for _, a := range listen {
		f.listen[a] = true
	}
	// interval is the time between tries of a link without traffic.
	interval := max(minStandbyInterval, time.Duration(len(links))*time.Second/standbyRate)
	paths := make(map[linkKey]*linkState, len(links))
	for _, l := range links {
		f.gateways[l.Addr] = wire.HashID(l.Peer)
		key := linkKey{l.Source, l.Addr}
		if p := f.links[key]; p != nil && p.MTU == l.MTU {
			becomesActive := l.InUse && !p.InUse
			p.Link, p.peerID, p.idleInterval = l, wire.HashID(l.Peer), interval
			p.setTraffic(f.hasTraffic(l))
			if becomesActive && !p.trying && p.phase == phaseSteady {
				p.next = now
			}
			paths[key] = p
		} else {
			paths[key] = newLinkState(now, l, interval, firstTryDelay(l, interval))
			paths[key].setTraffic(f.hasTraffic(l))
		}
		f.queue.Schedule(paths[key], paths[key].next)
	}
	for key, p := range f.links {
		if paths[key] != p {
			f.queue.Remove(p)
		}
	}
	f.links = paths
	f.mu.Unlock()
	f.config.Wake.Fire()
}

// SetTraffic sets the neighbouring clusters to which, or through which, this gateway recently
// forwarded packets.
func (f *Finder) SetTraffic(clusters map[string]bool) {
	f.mu.Lock()
	now := time.Now()
	f.traffic = maps.Clone(clusters)
	for _, p := range f.links {
		if p.setTraffic(f.hasTraffic(p.Link)) && !p.trying && p.phase == phaseSteady {
			p.next = now
			f.queue.Schedule(p, p.next)
		}
	}
	f.mu.Unlock()
	f.config.Wake.Fire()
}

// hasTraffic reports whether this gateway forwards packets over a link.
func (f *Finder) hasTraffic(l Link) bool {
	cluster, _, _ := strings.Cut(l.Peer, "/")
	return l.InUse && f.traffic[cluster]
}

// firstTryDelay returns the time until the first try. It spreads links over the interval. A link in
// use is tried at once.
func firstTryDelay(l Link, interval time.Duration) time.Duration {
	if l.InUse {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(l.Source.AsSlice())
	_, _ = h.Write(l.Addr.AsSlice())
	return time.Duration(h.Sum64() % uint64(interval))
}

// Snapshot returns all paths, sorted by peer, source and address.
func (f *Finder) Snapshot() []LinkMTU {
	f.mu.Lock()
	out := make([]LinkMTU, 0, len(f.links))
	for _, p := range f.links {
		out = append(out, p.LinkMTU)
	}
	f.mu.Unlock()
	slices.SortFunc(out, func(a, b LinkMTU) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), a.Source.Compare(b.Source), a.Addr.Compare(b.Addr))
	})
	return out
}

// Stats returns the counters.
func (f *Finder) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

func (f *Finder) count(add func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	add(&f.stats)
}

// Tick returns the probes that are due and the time until the next tick.
func (f *Finder) Tick(now time.Time) (out []socket.Datagram, wait time.Duration) {
	f.mu.Lock()
	changed := false
	for p, ok := f.queue.Next(now); ok; p, ok = f.queue.Next(now) {
		probes, linkChanged := p.tick(now, rand.Uint64)
		for _, s := range probes {
			out = append(out, socket.Datagram{
				From: socket.Bind{Addr: p.Source}, To: netip.AddrPortFrom(p.Addr, f.config.Port), Raw: encodeProbe(f.self, p.peerID, p.Addr, s),
			})
		}
		f.logChange(p, linkChanged)
		changed = changed || linkChanged
		f.queue.Schedule(p, p.next)
	}
	wait = max(f.queue.UntilNext(now, maxTickInterval), coalesceTime)
	f.nextTick = now.Add(wait)
	f.mu.Unlock()
	f.notify(changed)
	return out, wait
}

// logChange logs a changed State or PathMTU.
func (f *Finder) logChange(p *linkState, changed bool) {
	switch {
	case !changed:
	case p.State == BlackHole:
		f.config.Log.Warn("large packets vanish on a path", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU, "passes", p.PathMTU)
	case p.State == Searching:
		f.config.Log.Info("no reply to packets of full size", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU)
	default:
		f.config.Log.Info("packets of full size pass", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU)
	}
}

func (f *Finder) notify(changed bool) {
	if changed && f.config.OnChange != nil {
		f.config.OnChange()
	}
}
