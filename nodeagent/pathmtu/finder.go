package pathmtu

import (
	"cmp"
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/socket"
)

// Bounds of the work.
const (
	standbyRate = 50                    // looks a second at all links together that do not carry
	idle        = time.Second           // between passes while nothing is due
	pulse       = 20 * time.Millisecond // between two passes over the links
	replyRate   = 5000                  // answers a second, and in one burst
)

// way is what makes two links the same.
type way struct{ source, addr netip.Addr }

// Finder watches a set of links. Make it with New; Run does the work. All other
// methods may be called from any goroutine.
type Finder struct {
	config Config
	wake   bell.Bell

	mu     sync.Mutex
	listen map[netip.Addr]bool
	paths  map[way]*path
	known  map[netip.Addr]bool // who is answered
	stats  Stats
	bucket bucket
}

// New makes a Finder without links.
func New(config Config) *Finder {
	if config.Port == 0 {
		config.Port = Port
	}
	return &Finder{
		config: config, wake: bell.New(),
		listen: map[netip.Addr]bool{}, paths: map[way]*path{}, known: map[netip.Addr]bool{},
	}
}

// Set gives the own tunnel addresses, on which probes are answered, and the
// links. What is known of a link stays unless its addresses or its MTU changed.
func (f *Finder) Set(listen []netip.Addr, links []Link) {
	f.mu.Lock()
	now := time.Now()
	f.listen, f.known = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, a := range listen {
		f.listen[a] = true
	}
	interval := standbyInterval(links)
	paths := make(map[way]*path, len(links))
	for _, l := range links {
		f.known[l.Addr] = true
		key := way{l.Source, l.Addr}
		if p := f.paths[key]; p != nil && p.MTU == l.MTU {
			p.update(now, l, interval)
			paths[key] = p
			continue
		}
		paths[key] = newPath(now, l, pick(l, interval), offset(l, interval))
	}
	f.paths = paths
	f.mu.Unlock()
	f.wake.Ring()
}

// standbyInterval is the time between looks at a link that does not carry.
func standbyInterval(links []Link) time.Duration {
	n := 0
	for _, l := range links {
		if !l.Carries {
			n++
		}
	}
	return max(standby, time.Duration(n)*time.Second/standbyRate)
}

func pick(l Link, interval time.Duration) time.Duration {
	if l.Carries {
		return carried
	}
	return interval
}

// offset spreads the first looks; a link that carries is looked at once.
func offset(l Link, interval time.Duration) time.Duration {
	if l.Carries {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(l.Source.AsSlice())
	_, _ = h.Write(l.Addr.AsSlice())
	return time.Duration(h.Sum64() % uint64(interval))
}

// update takes what may change of a link: its name, and whether it carries.
func (p *path) update(now time.Time, l Link, interval time.Duration) {
	begins := l.Carries && !p.Carries
	p.Link, p.interval = l, pick(l, interval)
	if begins && !p.trying && p.phase == phaseSteady {
		p.due = now
	}
}

// Snapshot gives all paths, sorted by peer, source and address.
func (f *Finder) Snapshot() []Path {
	f.mu.Lock()
	out := make([]Path, 0, len(f.paths))
	for _, p := range f.paths {
		out = append(out, p.Path)
	}
	f.mu.Unlock()
	slices.SortFunc(out, func(a, b Path) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), a.Source.Compare(b.Source), a.Addr.Compare(b.Addr))
	})
	return out
}

// Stats gives the counters.
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

// Run probes and answers until the context ends. The sockets are opened in the
// network namespace of the thread that it was called on.
func (f *Finder) Run(ctx context.Context) error {
	sockets := f.sockets()
	defer sockets.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		sockets.Update(now, f.places)
		probes, wait := f.takeDue(now)
		sent, failed := sockets.Send(f.datagrams(probes))
		f.count(func(s *Stats) {
			s.Sent += sent
			s.Failed += failed // counts as one that vanished
		})
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			// What came since is done together with what comes within a pulse.
			timer.Reset(pulse)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		case <-timer.C:
		}
	}
}

// outgoing is one probe on its way.
type outgoing struct {
	from, to netip.Addr
	raw      []byte
}

func (f *Finder) datagrams(probes []outgoing) []socket.Datagram {
	out := make([]socket.Datagram, len(probes))
	for i, p := range probes {
		out[i] = socket.Datagram{From: socket.Place{Addr: p.from}, To: netip.AddrPortFrom(p.to, f.config.Port), Raw: p.raw}
	}
	return out
}

// takeDue makes the probes that are due, and says how long until the next ones.
func (f *Finder) takeDue(now time.Time) (out []outgoing, wait time.Duration) {
	f.mu.Lock()
	wait = idle
	changed := false
	for key, p := range f.paths {
		probes, differs := p.tick(now, rand.Uint64)
		for _, s := range probes {
			m := message{kind: kindProbe, size: uint16(s.size), nonce: s.nonce}
			out = append(out, outgoing{from: key.source, to: key.addr, raw: m.encode(key.addr)})
		}
		f.report(p, differs)
		changed = changed || differs
		wait = min(wait, p.due.Sub(now))
	}
	f.mu.Unlock()
	f.notify(changed)
	return out, max(wait, pulse)
}

// report writes what changed to the log.
func (f *Finder) report(p *path, changed bool) {
	switch {
	case !changed:
	case p.State == BlackHole:
		f.config.Log.Warn("large packets vanish on a path", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU, "passes", p.Value)
	case p.State == Searching:
		f.config.Log.Info("packets of full size are not answered", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU)
	default:
		f.config.Log.Info("packets of full size pass", "peer", p.Peer, "addr", p.Addr, "mtu", p.MTU)
	}
}

func (f *Finder) notify(changed bool) {
	if changed && f.config.OnChange != nil {
		f.config.OnChange()
	}
}
