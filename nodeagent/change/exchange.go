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
	"hawser.dev/hawser/internal/due"
	"hawser.dev/hawser/nodeagent/socket"
	"hawser.dev/hawser/nodeagent/transport"
	"hawser.dev/hawser/nodeagent/wire"
)

// Peer is a gateway of another cluster and the tunnel that the pair should have.
type Peer struct {
	Name string `json:"Name"` // cluster/gateway
	Want Tunnel `json:"Want"`
	Keys Keys   `json:"Keys"`
	// Secondary: both ends should go over the secondary tunnel for now; see Pair.Secondary
	Secondary bool       `json:"Secondary"`
	Source    netip.Addr `json:"Source"` // own tunnel address
	Addr      netip.Addr `json:"Addr"`   // the peer's, same family
}

// Applied is what the kernel has for one pair.
type Applied struct {
	Use     Tunnel              // is sent over
	Devices map[Tunnel][]string // of those that stand, the one to send over first
}

// Config is what an Exchange needs for its whole life.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake is rung when there is something to do before the time of the last tick is over.
	Wake bell.Bell
	// Kept is what the run before kept, by peer, and Keep keeps it for the next. It
	// is called by the goroutine of Run alone.
	Kept map[string]Kept
	Keep func(map[string]Kept) error
	// OnChange is called when tunnels are to be made, used or given up. It must not
	// block.
	OnChange func()
}

// Exchange tells the other ends what tunnels this gateway has, hears what they
// have, and so changes the tunnels of all its pairs, as a machine of a
// transport.Transport. Its methods may be called from any goroutine.
type Exchange struct {
	config Config
	saves  bell.Bell // there may be something to keep

	mu    sync.Mutex
	self  string // cluster/gateway; empty = this node is no gateway
	links map[string]*link
	flows map[flow]*link
	queue due.Queue[*link] // of pairs that talk, or of which something is new
	kept  map[string]Kept  // what others may act on
	begun bool             // the pairs are known; until then there is nothing to keep
	moved bool             // pairs changed, so sockets may have to

	// Of the goroutine of Run.
	saved  map[string]Kept // on disk
	failed bool            // could not be written
}

// link is a pair with what is needed to talk to its other end.
type link struct {
	due.Slot
	Peer
	pair    *Pair
	devices map[Tunnel][]string
	tunnels map[string]Tunnel // by device
	unsaid  []Outgoing        // until what they say is kept
}

// flow finds the pair that a packet belongs to.
type flow struct {
	source, from netip.Addr
	device       string
}

// New makes an Exchange without pairs.
func New(config Config) *Exchange {
	kept := config.Kept
	if kept == nil {
		kept = map[string]Kept{}
	}
	return &Exchange{
		config: config, saves: bell.New(), links: map[string]*link{}, flows: map[flow]*link{}, kept: kept, saved: maps.Clone(kept),
	}
}

// Set says which gateway this node is and which pairs it is part of. Pairs that
// stay keep their state; those that are new begin where the run before ended.
func (x *Exchange) Set(self string, peers []Peer) {
	now := time.Now()
	x.mu.Lock()
	changed := !x.begun || self != x.self || len(peers) != len(x.links)
	if self != x.self {
		for _, l := range x.links {
			x.queue.Remove(l)
		}
		x.links = map[string]*link{}
		x.self = self
	}
	links := make(map[string]*link, len(peers))
	for _, p := range peers {
		l := x.links[p.Name]
		if l != nil && reflect.DeepEqual(l.Peer, p) {
			links[p.Name] = l
			continue
		}
		changed = true
		if l == nil {
			number := uint64(now.UnixNano())
			l = &link{pair: Restore(x.kept[p.Name], p.Want, p.Keys, number, now)}
			x.kept[p.Name] = l.pair.Keep()
		}
		l.Peer = p
		l.pair.Want(p.Want, p.Keys, now)
		l.pair.Secondary(p.Secondary, now)
		x.queue.Set(l, now)
		links[p.Name] = l
	}
	for name, l := range x.links {
		if links[name] == nil {
			x.queue.Remove(l)
		}
	}
	x.links, x.begun = links, true
	if changed {
		x.moved = true
		x.index()
	}
	x.mu.Unlock()
	if changed {
		x.saves.Ring()
		x.config.Wake.Ring()
	}
}

// index finds the pairs behind the devices again.
func (x *Exchange) index() {
	x.flows = map[flow]*link{}
	for _, l := range x.links {
		for device := range l.tunnels {
			x.flows[flow{source: l.Source, from: l.Addr, device: device}] = l
		}
	}
}

// Tunnels gives the tunnels of each pair that is not just at the one that it should
// have, that to send over first. What it says may be in use until Applied says
// otherwise.
func (x *Exchange) Tunnels() map[string][]Tunnel {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string][]Tunnel{}
	for name, l := range x.links {
		kept := x.kept[name]
		if len(kept.Tunnels) == 1 && kept.Use == l.Want {
			continue
		}
		tunnels := []Tunnel{kept.Use}
		for _, c := range kept.Tunnels {
			if c != kept.Use {
				tunnels = append(tunnels, c)
			}
		}
		out[name] = tunnels
	}
	return out
}

// Holds reports whether any pair has a tunnel of a driver.
func (x *Exchange) Holds(driver string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.links {
		if slices.ContainsFunc(x.kept[name].Tunnels, func(c Tunnel) bool { return c.Driver == driver }) {
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
		tunnels := map[string]Tunnel{}
		for c, devices := range have.Devices {
			for _, d := range devices {
				tunnels[d] = c
			}
		}
		changed = changed || !maps.Equal(l.tunnels, tunnels)
		l.devices, l.tunnels = have.Devices, tunnels
		l.pair.Applied(slices.Collect(maps.Keys(have.Devices)), have.Use, now)
		x.queue.Set(l, now)
	}
	if changed {
		x.index()
	}
	x.mu.Unlock()
	x.config.Wake.Ring()
}

// Alive says whether packets get through to a peer now. It is to be told again while they
// do not.
func (x *Exchange) Alive(name string, alive bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		l.pair.Alive(alive, now)
		if !alive {
			x.queue.Set(l, now)
		}
	}
}

// OverSecondary says how far a peer's pair has gone over to its secondary tunnel; see
// Pair.OverSecondary.
func (x *Exchange) OverSecondary(name string) (begun, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		return l.pair.OverSecondary()
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

// Run keeps what pairs came to, before it is said or acted on, until ctx ends. It is for a
// goroutine of its own, as a disk may hang.
func (x *Exchange) Run(ctx context.Context) error {
	x.saves.Loop(ctx, func() time.Duration {
		x.keep()
		if x.failed {
			return retry
		}
		return never
	})
	return nil
}

const (
	// retry is how long after it failed the disk is tried again.
	retry = time.Second
	// never is when nothing is to be done unasked.
	never = time.Hour
	// idle is how long nothing is looked at, at most.
	idle = time.Second
)

// Places gives the tunnel addresses of this gateway; nil when they are as before, unless
// all are asked for.
func (x *Exchange) Places(all bool) map[socket.Place]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.moved && !all {
		return nil
	}
	x.moved = false
	out := map[socket.Place]bool{}
	for _, l := range x.links {
		out[socket.Place{Addr: l.Source}] = true
	}
	return out
}

// Sent is called for what Tick gave. Who gets no answer asks again, and so nothing is done.
func (x *Exchange) Sent(uint64, uint64) {}

// Tick gives what is to be sent now, and how long nothing is due after it.
func (x *Exchange) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []socket.Datagram
	for l, ok := x.queue.Next(now); ok; l, ok = x.queue.Next(now) {
		messages, at := l.pair.Tick(now)
		if at.IsZero() {
			x.queue.Remove(l)
		} else {
			x.queue.Set(l, due.Earlier(at, now.Add(idle))) // tunnels are given up in time, too
		}
		if len(messages) > 0 {
			l.unsaid = messages
		}
		if !reflect.DeepEqual(l.pair.Keep(), x.kept[l.Name]) {
			x.saves.Ring() // and then it is said
			continue
		}
		out = append(out, x.say(l)...)
	}
	return out, x.queue.Wait(now, idle)
}

// say gives the datagrams of what a pair has to say.
func (x *Exchange) say(l *link) []socket.Datagram {
	var out []socket.Datagram
	for _, m := range l.unsaid {
		if devices := l.devices[m.On]; len(devices) > 0 {
			out = append(out, x.datagram(l, devices[0], m.Message))
		}
	}
	l.unsaid = nil
	return out
}

func (x *Exchange) datagram(l *link, device string, m Message) socket.Datagram {
	out := wire.Message{From: wire.ID(x.self), To: wire.ID(l.Name), Tunnels: &m}
	return socket.Datagram{
		From: socket.Place{Addr: l.Source}, Over: device, To: netip.AddrPortFrom(l.Addr, x.config.Port), Raw: out.Encode(),
	}
}

// Receive takes a message that came over a tunnel, and gives the answer. What
// changes by it is kept before anything is said, so there is no answer then: the
// other end asks again.
func (x *Exchange) Receive(now time.Time, in transport.Incoming) []socket.Datagram {
	if in.Tunnels == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.flows[flow{source: in.At.Addr, from: in.From.Addr(), device: in.Over}]
	if l == nil || x.self == "" || in.To != wire.ID(x.self) || in.Message.From != wire.ID(l.Name) || in.From.Port() != x.config.Port {
		return nil
	}
	answer, ok := l.pair.Receive(l.tunnels[in.Over], *in.Tunnels, now)
	x.queue.Set(l, now)
	x.config.Wake.Ring()
	if !ok || !reflect.DeepEqual(l.pair.Keep(), x.kept[l.Name]) {
		return nil
	}
	return []socket.Datagram{x.datagram(l, in.Over, answer)}
}

// keep writes what changed before anybody learns of it.
func (x *Exchange) keep() {
	x.mu.Lock()
	if !x.begun {
		x.mu.Unlock()
		return
	}
	next := make(map[string]Kept, len(x.links))
	for name, l := range x.links {
		next[name] = l.pair.Keep()
	}
	same, news := reflect.DeepEqual(next, x.saved), !reflect.DeepEqual(next, x.kept)
	x.mu.Unlock()
	if !same {
		x.save(next)
	}
	if !news {
		return
	}
	x.mu.Lock()
	x.tell(next)
	for name := range x.kept {
		if x.links[name] == nil {
			delete(x.kept, name)
		}
	}
	for name, k := range next { // but not what came meanwhile
		if x.links[name] != nil {
			x.kept[name] = k
		}
	}
	now := time.Now()
	for _, l := range x.links {
		if len(l.unsaid) > 0 {
			x.queue.Set(l, now)
		}
	}
	x.mu.Unlock()
	x.config.Wake.Ring()
	x.config.OnChange()
}

// save goes on without, should the disk be full: then it matters only if this
// agent restarts before it is done.
func (x *Exchange) save(next map[string]Kept) {
	err := x.config.Keep(next)
	if err == nil {
		x.saved = next
	} else if !x.failed {
		x.config.Log.Warn("tunnels not kept for the next start", "err", err)
	}
	x.failed = err != nil
}

// tell writes changes of what is in use to the log.
func (x *Exchange) tell(next map[string]Kept) {
	for name, k := range next {
		before, known := x.kept[name]
		switch {
		case !known:
		case before.Use != k.Use:
			x.config.Log.Info("tunnel changed", "peer", name, "from", before.Use.String(), "to", k.Use.String())
		case !slices.Equal(before.Tunnels, k.Tunnels):
			x.config.Log.Info("tunnels of a pair", "peer", name, "use", k.Use.String(), "tunnels", k.Tunnels)
		}
	}
}
