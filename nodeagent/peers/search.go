package peers

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/change"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/endpoint"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/scout"
	"hawser.dev/hawser/nodeagent/socket"
	"hawser.dev/hawser/nodeagent/statefile"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/nodeagent/transport"
	"hawser.dev/hawser/schema/fabric"
)

// watched is how often it is looked where packets of the gateways that have a
// choice of endpoints come from.
const watched = 5 * time.Second

// search carries out what the machine of package endpoint decides, as a machine of a
// transport.Transport. Its questions leave by sockets of package scout, as the other end
// knows nothing of them; where packets of gateways come from is read by a goroutine of its
// own, as the kernel may take its time.
type search struct {
	config Config
	log    *slog.Logger
	prober *health.Prober
	tunnel *change.Exchange
	scout  *scout.Scout
	wake   bell.Bell                                  // of the transport
	looks  bell.Bell                                  // what is known of links may have changed
	file   *statefile.File[map[string]netip.AddrPort] // the places that worked

	mu      sync.Mutex
	machine *endpoint.Machine
	remotes map[string]round.Remote // by cluster/gateway
	tunnels map[string]peerPorts    // by cluster/gateway
	// goal counts the changes of what is searched for, and looked has the one after which it
	// was looked how links are: nothing is decided about a gateway before that.
	goal, looked int
	endpoints    map[string]model.RemoteEndpoint // as of the last step
	kept         map[string]netip.AddrPort       // as it was saved last
	seen         map[string]netip.AddrPort       // where links that live come from; replaced as a whole
}

func newSearch(config Config, prober *health.Prober, tunnel *change.Exchange, wake, looks bell.Bell) *search {
	s := &search{
		config: config, log: config.Log, prober: prober, tunnel: tunnel, scout: scout.New(config.Log), wake: wake, looks: looks,
		file: statefile.New[map[string]netip.AddrPort](config.StateDir, "endpoints.json"),
	}
	s.kept = s.file.Restore(config.Log)
	s.machine = endpoint.New(maps.Clone(s.kept))
	return s
}

// aim adapts the search to the gateways that there are.
func (e *search) aim(remotes []round.Remote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remotes = make(map[string]round.Remote, len(remotes))
	var choice []endpoint.Remote
	for _, r := range remotes {
		e.remotes[r.Name] = r
		if r.Choice {
			choice = append(choice, r.Remote)
		}
	}
	e.machine.Set(choice, time.Now())
	e.endpoints = e.machine.RemoteEndpoints()
	e.goal++
	e.looks.Ring()
}

// found says where gateways are reached, and from where those send whose links live.
func (e *search) found() (map[string]model.RemoteEndpoint, map[string]netip.AddrPort) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.RemoteEndpoints(), e.seen
}

// equip takes what questions need from what the node should have.
func (e *search) equip(in project.Input, n *round.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in.Keys != nil {
		e.tunnels = portsOf(in, n)
		e.goal++
	}
	e.looks.Ring()
}

// run looks how links are until ctx ends.
func (e *search) run(ctx context.Context) error {
	defer e.scout.Close()
	var saves sync.WaitGroup
	defer saves.Wait()
	saves.Go(func() { e.file.Run(ctx, 0, e.works, e.log) })
	e.looks.Loop(ctx, func() time.Duration {
		e.see(ctx, time.Now())
		e.wake.Ring()
		if e.file.Err() != nil { // it waits for a save that goes on, and so is not asked in a tick
			e.file.Changed()
		}
		return watched
	})
	return nil
}

// Places gives none: questions have sockets of their own.
func (e *search) Places(bool) map[socket.Place]bool { return nil }

// Sent has nothing to note, and Receive has to do with no message.
func (e *search) Sent(uint64, uint64)                                     {}
func (e *search) Receive(time.Time, transport.Incoming) []socket.Datagram { return nil }

// Tick does what is due, and says how long until the next time.
func (e *search) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	e.mu.Lock()
	if e.tunnels == nil || e.looked != e.goal {
		e.mu.Unlock()
		return nil, watched
	}
	idle := e.machine.Idle(now)
	asks, next := e.machine.Step(now)
	if idle {
		e.mu.Unlock()
		return nil, next.Sub(now)
	}
	endpoints, lost := e.machine.RemoteEndpoints(), e.machine.Unresolved()
	moved := !maps.Equal(e.endpoints, endpoints)
	e.endpoints = endpoints
	questions := make(map[endpoint.Ask]peerPorts, len(asks))
	for _, a := range asks {
		if p, known := e.tunnels[a.Name]; known {
			questions[a] = p
		}
	}
	works := e.machine.Kept()
	changed := !maps.Equal(e.kept, works)
	e.kept = works
	e.mu.Unlock()
	for a, p := range questions {
		if err := e.ask(p, a); err != nil {
			e.log.Debug("gateway not asked", "gateway", a.Name, "addr", a.Addr, "err", err)
		}
	}
	if moved {
		e.config.Look()
	}
	if lost {
		e.config.Resolve()
	}
	if changed {
		e.file.Changed()
	}
	return nil, next.Sub(now)
}

func (e *search) answered(a endpoint.Ask) {
	e.mu.Lock()
	e.machine.Answered(a, time.Now())
	e.mu.Unlock()
	e.wake.Ring()
}

// see tells the machine how the links are, and where the other ends are.
func (e *search) see(ctx context.Context, now time.Time) {
	e.mu.Lock()
	goal := e.goal
	var names []string
	var tunnels []desired.Tunnel
	for name := range e.machine.RemoteEndpoints() {
		// Other drivers know no other place than the one that they were told.
		if p, known := e.tunnels[name]; known && p.tunnel.Driver == fabric.DriverWireguard {
			names, tunnels = append(names, name), append(tunnels, p.tunnel)
		}
	}
	e.mu.Unlock()
	meters, err := e.config.Meters(ctx, tunnels)
	if err != nil {
		e.log.Debug("peers not read", "err", err)
	}
	links := e.prober.Snapshot().Links
	e.mu.Lock()
	e.looked = goal
	at := map[string]netip.AddrPort{}
	for i := range meters {
		// While a pair changes its tunnel the link may live over another one. An endpoint from
		// which nothing came is only what the tunnel was told.
		if meters[i].RxBytes > 0 {
			at[names[i]] = e.tunnels[names[i]].base(meters[i].Endpoint)
		}
	}
	secured := e.config.Secured()
	for name, p := range e.tunnels {
		if state, known := secured[p.tunnel.Connection()]; p.ike != nil && known && state.Endpoint.IsValid() {
			at[name] = p.candidate(state.Endpoint, e.remotes[name].Candidates)
		}
	}
	for i := range links {
		if links[i].Target.Device == "" {
			name := links[i].Target.Peer.String()
			e.tunnel.Alive(name, links[i].State == status.Connected, now)
			seen := endpoint.Seen{Alive: links[i].State == status.Connected, At: at[name]}
			if e.remotes[name].Driver != fabric.DriverWireguard {
				seen.Alive = links[i].Alive() // after a restart nothing is tried with a link that may live
			}
			seen.Begun, seen.Alone = e.tunnel.OverSecondary(name)
			e.machine.See(name, seen, now)
		}
	}
	places := e.machine.Places()
	maps.DeleteFunc(places, func(name string, _ netip.AddrPort) bool { return e.remotes[name].Driver != fabric.DriverWireguard })
	moved := !maps.Equal(e.seen, places)
	e.seen = places
	e.mu.Unlock()
	if moved {
		e.config.Look()
	}
}

// works gives the places that worked.
func (e *search) works() map[string]netip.AddrPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Kept()
}

// why says where a gateway is reached, which is the address and port given, and
// why there.
func (e *search) why(name, at string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text := e.machine.Why(name); text != "" {
		return text
	}
	r, known := e.remotes[name]
	switch {
	case !known:
		return ""
	case r.Endpoints == 0:
		return "no endpoint: it dials in"
	case len(r.Candidates) == 0:
		return "no endpoint of a family that this node has: it dials in"
	}
	only := r.Candidates[0]
	p, known := e.tunnels[name]
	if known && !p.isAt(at, only) {
		return "it dialled in; " + only.Text + " is its only endpoint"
	}
	return only.Text + ", its only endpoint"
}
