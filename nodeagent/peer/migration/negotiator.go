package migration

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// PairConfig is a gateway of another cluster and the tunnel that the pair should have.
type PairConfig struct {
	Name string   `json:"Name"` // cluster/gateway
	Want TunnelID `json:"Want"`
	Keys Keys     `json:"Keys"`
	// Secondary: both ends should go over the secondary tunnel for now; see Pair.Secondary
	Secondary bool       `json:"Secondary"`
	Source    netip.Addr `json:"Source"` // own tunnel address
	Addr      netip.Addr `json:"Addr"`   // the peer's, same family
}

// Installed is what the kernel has for one pair.
type Installed struct {
	Active  TunnelID              // is sent over
	Devices map[TunnelID][]string // of those that stand, the one to send over first
}

// Config is what an Exchange needs for its whole life.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake is rung when there is something to do before the time of the last tick is over.
	Wake trigger.Trigger
	// Kept is what the run before kept, by peer, and Keep keeps it for the next. It
	// is called by the goroutine of Run alone.
	Kept map[string]Saved
	Keep func(map[string]Saved) error
	// OnChange is called when tunnels are to be made, used or given up. It must not
	// block.
	OnChange func()
}

// Negotiator tells the other ends what tunnels this gateway has, hears what they
// have, and so changes the tunnels of all its pairs, as a machine of a
// transport.Transport. Its methods may be called from any goroutine.
type Negotiator struct {
	config Config
	saves  trigger.Trigger // there may be something to keep

	mu    sync.Mutex
	self  string // cluster/gateway; empty = this node is no gateway
	links map[string]*pairState
	flows map[flow]*pairState
	queue timerqueue.Queue[*pairState] // of pairs that talk, or of which something is new
	kept  map[string]Saved             // what others may act on
	begun bool                         // the pairs are known; until then there is nothing to keep
	moved bool                         // pairs changed, so sockets may have to

	// Of the goroutine of Run.
	saved  map[string]Saved // on disk
	failed bool             // could not be written
}

// pairState is a pair with what is needed to talk to its other end.
type pairState struct {
	timerqueue.Entry
	PairConfig
	pair    *Pair
	devices map[TunnelID][]string
	tunnels map[string]TunnelID // by device
	unsaid  []Outgoing          // until what they say is kept
}

// flow finds the pair that a packet belongs to.
type flow struct {
	source, from netip.Addr
	device       string
}

// New makes an Exchange without pairs.
func New(config Config) *Negotiator {
	kept := config.Kept
	if kept == nil {
		kept = map[string]Saved{}
	}
	return &Negotiator{
		config: config, saves: trigger.New(), links: map[string]*pairState{}, flows: map[flow]*pairState{}, kept: kept, saved: maps.Clone(kept),
	}
}

// Set says which gateway this node is and which pairs it is part of. Pairs that
// stay keep their state; those that are new begin where the run before ended.
func (x *Negotiator) Set(self string, peers []PairConfig) {
	now := time.Now()
	x.mu.Lock()
	changed := !x.begun || self != x.self || len(peers) != len(x.links)
	if self != x.self {
		for _, l := range x.links {
			x.queue.Remove(l)
		}
		x.links = map[string]*pairState{}
		x.self = self
	}
	links := make(map[string]*pairState, len(peers))
	for _, p := range peers {
		l := x.links[p.Name]
		if l != nil && reflect.DeepEqual(l.PairConfig, p) {
			links[p.Name] = l
			continue
		}
		changed = true
		if l == nil {
			number := uint64(now.UnixNano())
			l = &pairState{pair: Restore(x.kept[p.Name], p.Want, p.Keys, number, now)}
			x.kept[p.Name] = l.pair.Saved()
		}
		l.PairConfig = p
		l.pair.Want(p.Want, p.Keys, now)
		l.pair.Secondary(p.Secondary, now)
		x.queue.Schedule(l, now)
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
		x.saves.Fire()
		x.config.Wake.Fire()
	}
}

// index finds the pairs behind the devices again.
func (x *Negotiator) index() {
	x.flows = map[flow]*pairState{}
	for _, l := range x.links {
		for device := range l.tunnels {
			x.flows[flow{source: l.Source, from: l.Addr, device: device}] = l
		}
	}
}

// Tunnels gives the tunnels of each pair that is not just at the one that it should
// have, that to send over first. What it says may be in use until Applied says
// otherwise.
func (x *Negotiator) Tunnels() map[string][]TunnelID {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string][]TunnelID{}
	for name, l := range x.links {
		kept := x.kept[name]
		if len(kept.Tunnels) == 1 && kept.Use == l.Want {
			continue
		}
		tunnels := []TunnelID{kept.Use}
		for _, c := range kept.Tunnels {
			if c != kept.Use {
				tunnels = append(tunnels, c)
			}
		}
		out[name] = tunnels
	}
	return out
}

// UsesDriver reports whether any pair has a tunnel of a driver.
func (x *Negotiator) UsesDriver(driver string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.links {
		if slices.ContainsFunc(x.kept[name].Tunnels, func(c TunnelID) bool { return c.Driver == driver }) {
			return true
		}
	}
	return false
}

// SetInstalled says what the kernel has, by peer. One that is missing has what it had.
func (x *Negotiator) SetInstalled(applied map[string]Installed) {
	now := time.Now()
	x.mu.Lock()
	changed := false
	for name, l := range x.links {
		have, known := applied[name]
		if !known {
			continue
		}
		tunnels := map[string]TunnelID{}
		for c, devices := range have.Devices {
			for _, d := range devices {
				tunnels[d] = c
			}
		}
		changed = changed || !maps.Equal(l.tunnels, tunnels)
		l.devices, l.tunnels = have.Devices, tunnels
		l.pair.Applied(slices.Collect(maps.Keys(have.Devices)), have.Active, now)
		x.queue.Schedule(l, now)
	}
	if changed {
		x.index()
	}
	x.mu.Unlock()
	x.config.Wake.Fire()
}

// Alive says whether packets get through to a peer now. It is to be told again while they
// do not.
func (x *Negotiator) Alive(name string, alive bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		l.pair.Alive(alive, now)
		if !alive {
			x.queue.Schedule(l, now)
		}
	}
}

// OverSecondary says how far a peer's pair has gone over to its secondary tunnel; see
// Pair.OverSecondary.
func (x *Negotiator) OverSecondary(name string) (begun, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		return l.pair.OverSecondary()
	}
	return false, false
}

// Progress says how far the change of each pair is, by peer, where one goes on.
func (x *Negotiator) Progress() map[string]Progress {
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
func (x *Negotiator) Run(ctx context.Context) error {
	x.saves.Run(ctx, func() time.Duration {
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

// Sockets gives the tunnel addresses of this gateway; nil when they are as before, unless
// all are asked for.
func (x *Negotiator) Sockets(all bool) map[socket.Bind]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.moved && !all {
		return nil
	}
	x.moved = false
	out := map[socket.Bind]bool{}
	for _, l := range x.links {
		out[socket.Bind{Addr: l.Source}] = true
	}
	return out
}

// Sent is called for what Tick gave. Who gets no answer asks again, and so nothing is done.
func (x *Negotiator) Sent(uint64, uint64) {}

// Tick gives what is to be sent now, and how long nothing is due after it.
func (x *Negotiator) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []socket.Datagram
	for l, ok := x.queue.Next(now); ok; l, ok = x.queue.Next(now) {
		messages, at := l.pair.Tick(now)
		if at.IsZero() {
			x.queue.Remove(l)
		} else {
			x.queue.Schedule(l, timerqueue.Earlier(at, now.Add(idle))) // tunnels are given up in time, too
		}
		if len(messages) > 0 {
			l.unsaid = messages
		}
		if !reflect.DeepEqual(l.pair.Saved(), x.kept[l.Name]) {
			x.saves.Fire() // and then it is said
			continue
		}
		out = append(out, x.say(l)...)
	}
	return out, x.queue.UntilNext(now, idle)
}

// say gives the datagrams of what a pair has to say.
func (x *Negotiator) say(l *pairState) []socket.Datagram {
	var out []socket.Datagram
	for _, m := range l.unsaid {
		if devices := l.devices[m.On]; len(devices) > 0 {
			out = append(out, x.datagram(l, devices[0], m.Message))
		}
	}
	l.unsaid = nil
	return out
}

func (x *Negotiator) datagram(l *pairState, device string, m Message) socket.Datagram {
	out := wire.Message{From: wire.HashID(x.self), To: wire.HashID(l.Name), Tunnels: &m}
	return socket.Datagram{
		From: socket.Bind{Addr: l.Source}, Device: device, To: netip.AddrPortFrom(l.Addr, x.config.Port), Raw: out.Encode(),
	}
}

// Receive takes a message that came over a tunnel, and gives the answer. What
// changes by it is kept before anything is said, so there is no answer then: the
// other end asks again.
func (x *Negotiator) Receive(now time.Time, in transport.Packet) []socket.Datagram {
	if in.Tunnels == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.flows[flow{source: in.At.Addr, from: in.From.Addr(), device: in.Device}]
	if l == nil || x.self == "" || in.To != wire.HashID(x.self) || in.Message.From != wire.HashID(l.Name) || in.From.Port() != x.config.Port {
		return nil
	}
	answer, ok := l.pair.Receive(l.tunnels[in.Device], *in.Tunnels, now)
	x.queue.Schedule(l, now)
	x.config.Wake.Fire()
	if !ok || !reflect.DeepEqual(l.pair.Saved(), x.kept[l.Name]) {
		return nil
	}
	return []socket.Datagram{x.datagram(l, in.Device, answer)}
}

// keep writes what changed before anybody learns of it.
func (x *Negotiator) keep() {
	x.mu.Lock()
	if !x.begun {
		x.mu.Unlock()
		return
	}
	next := make(map[string]Saved, len(x.links))
	for name, l := range x.links {
		next[name] = l.pair.Saved()
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
			x.queue.Schedule(l, now)
		}
	}
	x.mu.Unlock()
	x.config.Wake.Fire()
	x.config.OnChange()
}

// save goes on without, should the disk be full: then it matters only if this
// agent restarts before it is done.
func (x *Negotiator) save(next map[string]Saved) {
	err := x.config.Keep(next)
	if err == nil {
		x.saved = next
	} else if !x.failed {
		x.config.Log.Warn("tunnels not kept for the next start", "err", err)
	}
	x.failed = err != nil
}

// tell writes changes of what is in use to the log.
func (x *Negotiator) tell(next map[string]Saved) {
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
