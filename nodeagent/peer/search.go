package peer

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/peer/endpointprobe"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// observeInterval is how often it is looked where packets of the gateways that have a
// choice of endpoints come from.
const observeInterval = 5 * time.Second

// endpointSelector carries out what the machine of package endpoint decides, as a machine of a
// transport.Transport. Its questions leave by sockets of package scout, as the other end
// knows nothing of them; where packets of gateways come from is read by a goroutine of its
// own, as the kernel may take its time.
type endpointSelector struct {
	config  Config
	log     *slog.Logger
	prober  *health.Prober
	tunnel  *migration.Negotiator
	scout   *endpointprobe.Client
	wake    trigger.Trigger                            // of the transport
	refresh trigger.Trigger                            // what is known of links may have changed
	file    *statefile.File[map[string]netip.AddrPort] // the places that worked

	mu      sync.Mutex
	machine *endpoint.Selector
	remotes map[string]round.Remote // by cluster/gateway
	tunnels map[string]probeTarget  // by cluster/gateway
	// specVersion counts the changes of what is searched for, and looked has the one after which it
	// was looked how links are: nothing is decided about a gateway before that.
	specVersion, observedVersion int
	endpoints                    map[string]model.RemoteEndpoint // as of the last step
	kept                         map[string]netip.AddrPort       // as it was saved last
	observedAddrs                map[string]netip.AddrPort       // where links that live come from; replaced as a whole
}

func newSearch(config Config, prober *health.Prober, tunnel *migration.Negotiator, wake, looks trigger.Trigger) *endpointSelector {
	s := &endpointSelector{
		config: config, log: config.Log, prober: prober, tunnel: tunnel, scout: endpointprobe.New(), wake: wake, refresh: looks,
		file: statefile.New[map[string]netip.AddrPort](config.StateDir, "endpoints.json"),
	}
	s.kept = s.file.LoadOrZero(config.Log)
	s.machine = endpoint.New(maps.Clone(s.kept))
	return s
}

// setRemotes adapts the search to the gateways that there are.
func (e *endpointSelector) setRemotes(remotes []round.Remote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remotes = make(map[string]round.Remote, len(remotes))
	var choice []endpoint.Remote
	for _, r := range remotes {
		e.remotes[r.Name] = r
		if r.HasAlternatives {
			choice = append(choice, r.Remote)
		}
	}
	e.machine.Set(choice, time.Now())
	e.endpoints = e.machine.RemoteEndpoints()
	e.specVersion++
	e.refresh.Fire()
}

// snapshot says where gateways are reached, and from where those send whose links live.
func (e *endpointSelector) snapshot() (map[string]model.RemoteEndpoint, map[string]netip.AddrPort) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.RemoteEndpoints(), e.observedAddrs
}

// setProjection takes what questions need from what the node should have.
func (e *endpointSelector) setProjection(in projection.Input, n *round.DesiredNode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in.Keys != nil {
		e.tunnels = portsOf(in, n)
		e.specVersion++
	}
	e.refresh.Fire()
}

// run looks how links are until ctx ends.
func (e *endpointSelector) run(ctx context.Context) error {
	defer e.scout.Close()
	var saves sync.WaitGroup
	defer saves.Wait()
	saves.Go(func() { e.file.Run(ctx, 0, e.works, e.log) })
	e.refresh.Run(ctx, func() time.Duration {
		e.observe(ctx, time.Now())
		e.wake.Fire()
		if e.file.Err() != nil { // it waits for a save that goes on, and so is not asked in a tick
			e.file.MarkDirty()
		}
		return observeInterval
	})
	return nil
}

// Sockets gives none: questions have sockets of their own.
func (e *endpointSelector) Sockets(bool) map[socket.Bind]bool { return nil }

// Sent has nothing to note, and Receive has to do with no message.
func (e *endpointSelector) Sent(uint64, uint64)                                   {}
func (e *endpointSelector) Receive(time.Time, transport.Packet) []socket.Datagram { return nil }

// Tick does what is due, and says how long until the next time.
func (e *endpointSelector) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	e.mu.Lock()
	if e.tunnels == nil || e.observedVersion != e.specVersion {
		e.mu.Unlock()
		return nil, observeInterval
	}
	idle := e.machine.Idle(now)
	asks, next := e.machine.Step(now)
	if idle {
		e.mu.Unlock()
		return nil, next.Sub(now)
	}
	endpoints, lost := e.machine.RemoteEndpoints(), e.machine.ConsumeResolveRequest()
	moved := !maps.Equal(e.endpoints, endpoints)
	e.endpoints = endpoints
	questions := make(map[endpoint.ProbeRequest]probeTarget, len(asks))
	for _, a := range asks {
		if p, known := e.tunnels[a.Name]; known {
			questions[a] = p
		}
	}
	works := e.machine.Working()
	changed := !maps.Equal(e.kept, works)
	e.kept = works
	e.mu.Unlock()
	for a, p := range questions {
		if err := e.ask(p, a); err != nil {
			e.log.Debug("gateway not asked", "gateway", a.Name, "addr", a.Addr, "err", err)
		}
	}
	if moved {
		e.config.TriggerRound()
	}
	if lost {
		e.config.Resolve()
	}
	if changed {
		e.file.MarkDirty()
	}
	return nil, next.Sub(now)
}

func (e *endpointSelector) answered(a endpoint.ProbeRequest) {
	e.mu.Lock()
	e.machine.OnReply(a, time.Now())
	e.mu.Unlock()
	e.wake.Fire()
}

// observe tells the machine how the links are, and where the other ends are.
func (e *endpointSelector) observe(ctx context.Context, now time.Time) {
	e.mu.Lock()
	goal := e.specVersion
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
	e.observedVersion = goal
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
			seen := endpoint.LinkState{Alive: links[i].State == status.Connected, ObservedAddr: at[name]}
			if e.remotes[name].Driver != fabric.DriverWireguard {
				seen.Alive = links[i].Alive() // after a restart nothing is tried with a link that may live
			}
			seen.OnSecondary, seen.SecondaryOnly = e.tunnel.OverSecondary(name)
			e.machine.UpdateLink(name, seen, now)
		}
	}
	places := e.machine.Places()
	maps.DeleteFunc(places, func(name string, _ netip.AddrPort) bool { return e.remotes[name].Driver != fabric.DriverWireguard })
	moved := !maps.Equal(e.observedAddrs, places)
	e.observedAddrs = places
	e.mu.Unlock()
	if moved {
		e.config.TriggerRound()
	}
}

// works gives the places that worked.
func (e *endpointSelector) works() map[string]netip.AddrPort {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Working()
}

// why says where a gateway is reached, which is the address and port given, and
// why there.
func (e *endpointSelector) why(name, at string) string {
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
