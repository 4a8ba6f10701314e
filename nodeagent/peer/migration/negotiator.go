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

const (
	// retryInterval is the time between two attempts to save after one failed.
	retryInterval = time.Second
	// noDeadline is the wait without a deadline.
	noDeadline = time.Hour
	// maxTickInterval is the longest time between two ticks of a migrating pair.
	maxTickInterval = time.Second
)

// PairConfig is a gateway of another cluster and the tunnel that the pair should have.
type PairConfig struct {
	Name string // cluster/gateway
	Want TunnelID
	Keys Keys
	// Secondary reports whether both ends should use the secondary tunnel for now; see
	// Pair.SetSecondary.
	Secondary bool
	Source    netip.Addr // local tunnel address
	Addr      netip.Addr // tunnel address of the peer, same family
}

// Installed describes the tunnels of one pair in the kernel.
type Installed struct {
	Active TunnelID // tunnel to send over
	// Devices has the devices of each tunnel that works. The preferred device comes first.
	Devices map[TunnelID][]string
}

// Config is the fixed configuration of a Negotiator.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake fires if a tick is due earlier than the last tick returned.
	Wake trigger.Trigger
	// Restored is the state that the previous agent saved, by peer. Save replaces the saved
	// state. Only the goroutine of Run calls Save.
	Restored map[string]Saved
	Save     func(map[string]Saved) error
	// OnChange runs if the agent has to create, use or remove tunnels. It must not block.
	OnChange func()
}

// Negotiator migrates all pairs of this gateway. As a transport.Protocol, it exchanges reports with
// the peers. It saves a change before it sends a report and before the kernel changes. Thus a
// restarted agent knows all tunnels that a peer may send over. Its methods are safe for concurrent
// use.
type Negotiator struct {
	config      Config
	saveTrigger trigger.Trigger // a pair changed

	mu       sync.Mutex
	self     string // cluster/gateway; empty = this node is no gateway
	synced   bool   // Set was called; before that there is no state to save
	pairs    map[string]*pairState
	byPath   map[packetPath]*pairState
	queue    timerqueue.Queue[*pairState] // pairs that probe or have changed
	rebind   bool                         // the sockets may have to change
	restored map[string]Saved             // of the previous agent, until the first save

	// Only the goroutine of Run uses these fields.
	lastSaved map[string]Saved
	saveErr   error
}

// pairState is a pair with the addresses of its peer.
type pairState struct {
	timerqueue.Entry
	PairConfig
	pair    *Pair
	saved   Saved // saved state, which the agent and the peer may use
	devices map[TunnelID][]string
	tunnels map[string]TunnelID // by device
}

// isSaved reports whether the state of a pair has been saved.
func (s *pairState) isSaved() bool { return s.pair.Saved().equal(s.saved) }

// packetPath identifies the pair of a packet.
type packetPath struct {
	source, from netip.Addr
	device       string
}

// New returns a Negotiator without pairs.
func New(config Config) *Negotiator {
	return &Negotiator{
		config: config, saveTrigger: trigger.New(), pairs: map[string]*pairState{}, byPath: map[packetPath]*pairState{},
		restored: maps.Clone(config.Restored), lastSaved: config.Restored,
	}
}

// Set replaces the name of this gateway and its pairs. Pairs in both sets keep their state. A new
// pair starts with the state that the previous agent saved.
func (n *Negotiator) Set(self string, peers []PairConfig) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := !n.synced || self != n.self || len(peers) != len(n.pairs)
	before, restored := n.pairs, n.restored
	if self != n.self {
		restored = map[string]Saved{}
		maps.Copy(restored, n.restored)
		for name, s := range before {
			n.queue.Remove(s)
			restored[name] = s.saved
		}
		before = nil
	}
	n.self, n.synced, n.pairs = self, true, make(map[string]*pairState, len(peers))
	for _, p := range peers {
		s := before[p.Name]
		n.pairs[p.Name] = s
		switch {
		case s == nil:
			pair := Restore(restored[p.Name], p.Want, p.Keys, uint64(now.UnixNano()), now)
			s = &pairState{pair: pair, saved: pair.Saved()}
			n.pairs[p.Name] = s
		case reflect.DeepEqual(s.PairConfig, p):
			continue
		}
		changed = true
		s.PairConfig = p
		s.pair.SetWant(p.Want, p.Keys, now)
		s.pair.SetSecondary(p.Secondary, now)
		n.queue.Schedule(s, now)
	}
	for name, s := range before {
		if n.pairs[name] == nil {
			n.queue.Remove(s)
		}
	}
	if changed {
		n.rebind = true
		n.rebuildIndex()
		n.saveTrigger.Fire()
		n.config.Wake.Fire()
	}
}

// rebuildIndex rebuilds the index of pairs by device.
func (n *Negotiator) rebuildIndex() {
	n.byPath = map[packetPath]*pairState{}
	for _, s := range n.pairs {
		for device := range s.tunnels {
			n.byPath[packetPath{source: s.Source, from: s.Addr, device: device}] = s
		}
	}
}

// Tunnels returns the tunnels of each pair that has another tunnel than the wanted one. The active
// tunnel comes first. All tunnels may be in use until SetInstalled omits them.
func (n *Negotiator) Tunnels() map[string][]TunnelID {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string][]TunnelID{}
	for name, s := range n.pairs {
		if len(s.saved.Tunnels) == 1 && s.saved.Active == s.Want {
			continue
		}
		tunnels := []TunnelID{s.saved.Active}
		for _, c := range s.saved.Tunnels {
			if c != s.saved.Active {
				tunnels = append(tunnels, c)
			}
		}
		out[name] = tunnels
	}
	return out
}

// UsesDriver reports whether any pair has a tunnel of a driver.
func (n *Negotiator) UsesDriver(driver string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.pairs {
		if slices.ContainsFunc(s.saved.Tunnels, func(c TunnelID) bool { return c.Driver == driver }) {
			return true
		}
	}
	return false
}

// SetInstalled sets the tunnels in the kernel, by peer. Pairs of other peers do not change.
func (n *Negotiator) SetInstalled(installed map[string]Installed) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := false
	for name, s := range n.pairs {
		state, known := installed[name]
		if !known {
			continue
		}
		tunnels := map[string]TunnelID{}
		for c, devices := range state.Devices {
			for _, d := range devices {
				tunnels[d] = c
			}
		}
		changed = changed || !maps.Equal(s.tunnels, tunnels)
		s.devices, s.tunnels = state.Devices, tunnels
		s.pair.SetInstalled(slices.Collect(maps.Keys(state.Devices)), state.Active, now)
		n.queue.Schedule(s, now)
	}
	if changed {
		n.rebuildIndex()
	}
	n.config.Wake.Fire()
}

// SetAlive sets whether packets of a peer arrive now. It must be called repeatedly while none
// arrive.
func (n *Negotiator) SetAlive(name string, alive bool, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.pairs[name]; s != nil {
		s.pair.SetAlive(alive, now)
		if !alive {
			n.queue.Schedule(s, now)
		}
	}
}

// OverSecondary returns Pair.OverSecondary of a peer; false if there is no such pair.
func (n *Negotiator) OverSecondary(name string) (active, only bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.pairs[name]; s != nil {
		return s.pair.OverSecondary()
	}
	return false, false
}

// Progress returns the progress of migrations, by peer.
func (n *Negotiator) Progress() map[string]Progress {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]Progress{}
	for name, s := range n.pairs {
		if p := s.pair.Progress(now); p.Reason != "" {
			out[name] = p
		}
	}
	return out
}

// Run saves changes of pairs until ctx is done. It needs a separate goroutine, because the disk may
// block.
func (n *Negotiator) Run(ctx context.Context) error {
	n.saveTrigger.Run(ctx, func() time.Duration {
		n.save()
		if n.saveErr != nil {
			return retryInterval
		}
		return noDeadline
	})
	return nil
}

// Sockets implements transport.Protocol.
func (n *Negotiator) Sockets(all bool) map[socket.Bind]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.rebind && !all {
		return nil
	}
	n.rebind = false
	out := map[socket.Bind]bool{}
	for _, s := range n.pairs {
		out[socket.Bind{Addr: s.Source}] = true
	}
	return out
}

// Sent implements transport.Protocol. A lost probe needs no action: the next probe replaces it.
func (n *Negotiator) Sent(uint64, uint64) {}

// Tick implements transport.Protocol.
func (n *Negotiator) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []socket.Datagram
	for s, ok := n.queue.Next(now); ok; s, ok = n.queue.Next(now) {
		s.pair.Advance(now)
		if !s.isSaved() {
			// applySaved schedules the pair earlier.
			n.queue.Schedule(s, now.Add(maxTickInterval))
			n.saveTrigger.Fire()
			continue
		}
		probes, next := s.pair.Tick(now)
		if next.IsZero() {
			n.queue.Remove(s)
		} else {
			n.queue.Schedule(s, timerqueue.Earlier(next, now.Add(maxTickInterval)))
		}
		for _, m := range probes {
			if devices := s.devices[m.On]; len(devices) > 0 {
				out = append(out, n.datagram(s, devices[0], m.Message))
			}
		}
	}
	return out, n.queue.UntilNext(now, maxTickInterval)
}

func (n *Negotiator) datagram(s *pairState, device string, m Message) socket.Datagram {
	out := wire.Message{From: wire.HashID(n.self), To: wire.HashID(s.Name), Tunnels: &m}
	return socket.Datagram{
		From: socket.Bind{Addr: s.Source}, Device: device, To: netip.AddrPortFrom(s.Addr, n.config.Port), Raw: out.Encode(),
	}
}

// Receive implements transport.Protocol. It returns no reply if the message changes the state,
// which must be saved first. The peer probes again.
func (n *Negotiator) Receive(now time.Time, in transport.Packet) []socket.Datagram {
	if in.Tunnels == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.byPath[packetPath{source: in.Local.Addr, from: in.From.Addr(), device: in.Device}]
	if s == nil || n.self == "" || in.To != wire.HashID(n.self) || in.Message.From != wire.HashID(s.Name) || in.From.Port() != n.config.Port {
		return nil
	}
	reply, ok := s.pair.Receive(s.tunnels[in.Device], *in.Tunnels, now)
	n.queue.Schedule(s, now)
	n.config.Wake.Fire()
	if !ok || !s.isSaved() {
		return nil
	}
	return []socket.Datagram{n.datagram(s, in.Device, reply)}
}

// save writes the state of all pairs and then applies it. It applies the state even if the write
// fails: the file matters only if this agent restarts during a migration.
func (n *Negotiator) save() {
	n.mu.Lock()
	if !n.synced {
		n.mu.Unlock()
		return
	}
	next := make(map[string]Saved, len(n.pairs))
	for name, s := range n.pairs {
		next[name] = s.pair.Saved()
	}
	n.mu.Unlock()
	var err error
	if !maps.EqualFunc(next, n.lastSaved, Saved.equal) {
		if err = n.config.Save(next); err == nil {
			n.lastSaved = next
		} else if n.saveErr == nil {
			n.config.Log.Warn("cannot save tunnel state", "err", err)
		}
	}
	n.saveErr = err
	if n.applySaved(next) {
		n.config.Wake.Fire()
		n.config.OnChange()
	}
}

// applySaved lets the agent and the peers use saved states. It reports whether a state changed.
func (n *Negotiator) applySaved(saved map[string]Saved) bool {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := false
	n.restored = nil
	for name, s := range n.pairs {
		next, known := saved[name]
		if !known || next.equal(s.saved) {
			continue
		}
		n.logChange(name, s.saved, next)
		s.saved, changed = next, true
		n.queue.Schedule(s, now)
	}
	return changed
}

func (n *Negotiator) logChange(peer string, from, to Saved) {
	if from.Active != to.Active {
		n.config.Log.Info("tunnel changed", "peer", peer, "from", from.Active.String(), "to", to.Active.String())
	} else {
		n.config.Log.Info("tunnels of a pair", "peer", peer, "use", to.Active.String(), "tunnels", to.Tunnels)
	}
}
