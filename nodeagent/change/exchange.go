package change

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/internal/spread"
	"hawser.dev/hawser/nodeagent/socket"
)

// Peer is a gateway of another cluster and the cable that the pair should have.
type Peer struct {
	Name   string // cluster/gateway
	Want   Cable
	Keys   Keys
	Aside  bool       // both ends should go over the other cable for now; see Pair.Aside
	Source netip.Addr // own tunnel address
	Addr   netip.Addr // the peer's, same family
}

// Applied is what the kernel has for one pair.
type Applied struct {
	Use     Cable              // is sent over
	Devices map[Cable][]string // of those that stand, the one to send over first
}

// Config is what an Exchange needs for its whole life.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Kept is what the run before kept, by peer, and Keep keeps it for the next. It
	// is called by one goroutine.
	Kept map[string]Kept
	Keep func(map[string]Kept) error
	// OnChange is called when cables are to be made, used or given up. It must not
	// block.
	OnChange func()
}

// Exchange tells the other ends what cables this gateway has, hears what they
// have, and so changes the cables of all its pairs. Its methods may be called from
// any goroutine.
type Exchange struct {
	config Config
	wake   bell.Bell

	mu     sync.Mutex
	self   string // cluster/gateway; empty = this node is no gateway
	links  map[string]*link
	places map[socket.Place]bool
	ways   map[way]*link
	kept   map[string]Kept // what others may act on
	begun  bool            // the pairs are known; until then there is nothing to keep

	// Of the goroutine of Run.
	saved  map[string]Kept // on disk
	failed bool            // could not be written
}

// link is a pair with what is needed to talk to its other end.
type link struct {
	Peer
	pair    *Pair
	devices map[Cable][]string
	cables  map[string]Cable // by device
}

// way finds the pair that a packet belongs to.
type way struct {
	at   socket.Place
	from netip.Addr
}

// New makes an Exchange without pairs.
func New(config Config) *Exchange {
	kept := config.Kept
	if kept == nil {
		kept = map[string]Kept{}
	}
	return &Exchange{config: config, wake: bell.New(), links: map[string]*link{}, ways: map[way]*link{}, kept: kept, saved: maps.Clone(kept)}
}

// Set says which gateway this node is and which pairs it is part of. Pairs that
// stay keep their state; those that are new begin where the run before ended.
func (x *Exchange) Set(self string, peers []Peer) {
	now := time.Now()
	x.mu.Lock()
	if self != x.self {
		x.self, x.links = self, map[string]*link{}
	}
	links := make(map[string]*link, len(peers))
	for _, p := range peers {
		l := x.links[p.Name]
		if l == nil {
			number := uint64(now.UnixNano())
			l = &link{pair: Restore(x.kept[p.Name], p.Want, p.Keys, number, now)}
			x.kept[p.Name] = l.pair.Keep()
		}
		l.Peer = p
		l.pair.Want(p.Want, p.Keys, now)
		l.pair.Aside(p.Aside, now)
		links[p.Name] = l
	}
	x.links, x.begun = links, true
	x.index()
	x.mu.Unlock()
	x.wake.Ring()
}

// index finds the sockets and the pairs behind them again.
func (x *Exchange) index() {
	x.places, x.ways = map[socket.Place]bool{}, map[way]*link{}
	for _, l := range x.links {
		for device := range l.cables {
			place := socket.Place{Addr: l.Source, Device: device}
			x.places[place] = true
			x.ways[way{place, l.Addr}] = l
		}
	}
}

// Cables gives the cables of each pair that is not just at the one that it should
// have, that to send over first. What it says may be in use until Applied says
// otherwise.
func (x *Exchange) Cables() map[string][]Cable {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string][]Cable{}
	for name, l := range x.links {
		kept := x.kept[name]
		if len(kept.Cables) == 1 && kept.Use == l.Want {
			continue
		}
		cables := []Cable{kept.Use}
		for _, c := range kept.Cables {
			if c != kept.Use {
				cables = append(cables, c)
			}
		}
		out[name] = cables
	}
	return out
}

// Holds reports whether any pair has a cable of a driver.
func (x *Exchange) Holds(driver string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.links {
		if slices.ContainsFunc(x.kept[name].Cables, func(c Cable) bool { return c.Driver == driver }) {
			return true
		}
	}
	return false
}

// Applied says what the kernel has, by peer. One that is missing has what it had.
func (x *Exchange) Applied(applied map[string]Applied) {
	now := time.Now()
	x.mu.Lock()
	changed := false
	for name, l := range x.links {
		have, known := applied[name]
		if !known {
			continue
		}
		cables := map[string]Cable{}
		for c, devices := range have.Devices {
			for _, d := range devices {
				cables[d] = c
			}
		}
		changed = changed || !maps.Equal(l.cables, cables)
		l.devices, l.cables = have.Devices, cables
		l.pair.Applied(slices.Collect(maps.Keys(have.Devices)), have.Use, now)
	}
	if changed {
		x.index()
	}
	x.mu.Unlock()
	x.wake.Ring()
}

// Apart says how far a peer's pair has gone aside; see Pair.Apart.
func (x *Exchange) Apart(name string) (begun, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		return l.pair.Apart()
	}
	return false, false
}

// Progress says how far the change of each pair is, by peer, where one goes on.
func (x *Exchange) Progress() map[string]Progress {
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string]Progress{}
	for name, l := range x.links {
		if p := l.pair.Progress(now); p.Why != "" {
			out[name] = p
		}
	}
	return out
}

// Run talks to the other ends until ctx ends. The sockets are opened in the
// network namespace of the thread that it was called on.
func (x *Exchange) Run(ctx context.Context) error {
	sockets := socket.NewSet(socket.SetConfig{
		Name: "cable", Port: x.config.Port, Log: x.config.Log, Largest: maxPacket, Read: x.receive,
	})
	defer sockets.Close()
	x.wake.Loop(ctx, func() time.Duration {
		now := time.Now()
		sockets.Update(now, x.wanted)
		out, wait := x.tick(now)
		x.keep()
		sockets.Send(out)
		return wait
	})
	return nil
}

// idle is how often sockets are looked at while nothing is due.
const idle = time.Second

func (x *Exchange) wanted(bool) map[socket.Place]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.places)
}

// tick gives what is to be sent now, and how long nothing is due after it.
func (x *Exchange) tick(now time.Time) ([]socket.Datagram, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	wait := idle
	var out []socket.Datagram
	for _, name := range slices.Sorted(maps.Keys(x.links)) {
		l := x.links[name]
		messages, due := l.pair.Tick(now)
		if !due.IsZero() {
			wait = min(wait, max(due.Sub(now), time.Millisecond))
		}
		for _, m := range messages {
			if devices := l.devices[m.On]; len(devices) > 0 {
				out = append(out, x.datagram(l, devices[0], m.Message))
			}
		}
	}
	return out, wait
}

func (x *Exchange) datagram(l *link, device string, m Message) socket.Datagram {
	m.From, m.To = spread.Hash(x.self), spread.Hash(l.Name)
	return socket.Datagram{
		From: socket.Place{Addr: l.Source, Device: device}, To: netip.AddrPortFrom(l.Addr, x.config.Port), Raw: m.encode(),
	}
}

// receive takes a packet that came over a cable, and gives the answer. What
// changes by it is kept before anything is said, so there is no answer then: the
// other end asks again.
func (x *Exchange) receive(at socket.Place, from netip.AddrPort, raw []byte) []socket.Datagram {
	m, err := decode(raw)
	if err != nil {
		return nil
	}
	now := time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.ways[way{at, from.Addr()}]
	if l == nil || x.self == "" || m.To != spread.Hash(x.self) || m.From != spread.Hash(l.Name) || from.Port() != x.config.Port {
		return nil
	}
	answer, ok := l.pair.Receive(l.cables[at.Device], m, now)
	x.wake.Ring()
	if !ok || !reflect.DeepEqual(l.pair.Keep(), x.kept[l.Name]) {
		return nil
	}
	out := x.datagram(l, at.Device, answer)
	out.To = from
	return []socket.Datagram{out}
}
