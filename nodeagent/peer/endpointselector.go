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

// observeInterval is the time between two reads of the peers' endpoints from the kernel.
const observeInterval = 5 * time.Second

// endpointSelector runs an endpoint.Selector. It observes the links, sends the probes and saves the
// candidates that work. It implements transport.Protocol only for its timer. Probes use sockets of
// package endpointprobe, because the tunnel may be down. A separate goroutine observes the links,
// because reads from the kernel may block.
type endpointSelector struct {
	config      Config
	log         *slog.Logger
	prober      *health.Prober
	negotiator  *migration.Negotiator
	probes      *endpointprobe.Client
	wake        trigger.Trigger                            // of the transport
	refresh     trigger.Trigger                            // links may have changed
	workingFile *statefile.File[map[string]netip.AddrPort] // candidates that work

	mu       sync.Mutex
	selector *endpoint.Selector
	remotes  map[string]round.Remote // by cluster/gateway
	targets  map[string]probeTarget  // by cluster/gateway
	// specVersion counts the changes of remotes and targets. observedVersion is the specVersion
	// of the last observation. No step runs unless they are equal.
	specVersion, observedVersion int
	working                      map[string]netip.AddrPort // as in workingFile
	observed                     endpoint.ObservedAddrs    // of live WireGuard links; replaced as a whole
}

func newEndpointSelector(
	config Config, prober *health.Prober, negotiator *migration.Negotiator, wake, refresh trigger.Trigger,
) *endpointSelector {
	e := &endpointSelector{
		config: config, log: config.Log, prober: prober, negotiator: negotiator,
		probes: endpointprobe.New(), wake: wake, refresh: refresh,
	}
	e.workingFile = statefile.New[map[string]netip.AddrPort](config.StateDir, "endpoints.json")
	e.working = e.workingFile.LoadOrZero(config.Log)
	e.selector = endpoint.New(maps.Clone(e.working))
	return e
}

// setRemotes sets the remote gateways to which this gateway has a link.
func (e *endpointSelector) setRemotes(remotes []round.Remote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remotes = make(map[string]round.Remote, len(remotes))
	var selectable []endpoint.Remote
	for _, r := range remotes {
		e.remotes[r.Name] = r
		if r.HasAlternatives {
			selectable = append(selectable, r.Remote)
		}
	}
	e.selector.Set(selectable, time.Now())
	e.specVersion++
	e.refresh.Fire()
}

// setProjection sets the probe targets of the desired tunnels.
func (e *endpointSelector) setProjection(in projection.Input, n *round.DesiredNode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in.Keys != nil {
		e.targets = probeTargets(in, n)
		e.specVersion++
	}
	e.refresh.Fire()
}

// snapshot returns the endpoints in use of remote gateways, and the observed addresses of peers.
func (e *endpointSelector) snapshot() (map[string]model.RemoteEndpoint, endpoint.ObservedAddrs) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.selector.RemoteEndpoints(), e.observed
}

// run observes links until ctx is done.
func (e *endpointSelector) run(ctx context.Context) error {
	defer e.probes.Close()
	var saver sync.WaitGroup
	defer saver.Wait()
	saver.Go(func() {
		e.workingFile.Run(ctx, 0, func() map[string]netip.AddrPort {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.selector.Working()
		}, e.log)
	})
	e.refresh.Run(ctx, func() time.Duration {
		e.observe(ctx, time.Now())
		e.wake.Fire()
		if e.workingFile.Err() != nil { // not in Tick, because Err waits for a running save
			e.workingFile.MarkDirty()
		}
		return observeInterval
	})
	return nil
}

// observe updates the state of all links.
func (e *endpointSelector) observe(ctx context.Context, now time.Time) {
	e.mu.Lock()
	version := e.specVersion
	var names []string
	var tunnels []desired.Tunnel
	for name := range e.selector.RemoteEndpoints() {
		if t, known := e.targets[name]; known && t.tunnel.Driver == fabric.DriverWireguard {
			names, tunnels = append(names, name), append(tunnels, t.tunnel)
		}
	}
	e.mu.Unlock()
	meters, err := e.config.TunnelCounters(ctx, tunnels)
	if err != nil {
		e.log.Debug("cannot read counters of tunnels", "err", err)
	}
	secured := e.config.Secured()
	links := e.prober.Snapshot().Links

	e.mu.Lock()
	e.observedVersion = version
	addrs := map[string]netip.AddrPort{}
	for i := range meters {
		// A device without received bytes has only its configured endpoint. During a
		// migration the link may use another device.
		if name := names[i]; meters[i].RxBytes > 0 {
			addrs[name] = e.targets[name].candidateAddr(parseAddrPort(meters[i].Endpoint), e.remotes[name].Candidates)
		}
	}
	for name, t := range e.targets {
		if state, known := secured[t.tunnel.Connection()]; t.ikePort != nil && known && state.Endpoint.IsValid() {
			addrs[name] = t.candidateAddr(state.Endpoint, e.remotes[name].Candidates)
		}
	}
	for i := range links {
		if links[i].Target.Device != "" {
			continue // a link inside the cluster
		}
		name := links[i].Target.Peer.String()
		connected := links[i].State() == status.Connected
		e.negotiator.SetAlive(name, connected, now)
		state := endpoint.LinkState{Alive: connected, ObservedAddr: addrs[name]}
		if e.remotes[name].Driver != fabric.DriverWireguard {
			// After a restart, a link that may be up is not moved.
			state.Alive = links[i].Alive()
		}
		state.OnSecondary, state.SecondaryOnly = e.negotiator.OverSecondary(name)
		e.selector.UpdateLink(name, state, now)
	}
	observed := e.selector.ObservedAddrs()
	maps.DeleteFunc(observed, func(name string, _ netip.AddrPort) bool { return e.remotes[name].Driver != fabric.DriverWireguard })
	changed := !maps.Equal(e.observed, observed)
	e.observed = observed
	e.mu.Unlock()
	if changed {
		e.config.TriggerRound()
	}
}

// Sockets implements transport.Protocol. The selector has no sockets of the transport.
func (e *endpointSelector) Sockets(bool) map[socket.Bind]bool { return nil }

// Sent implements transport.Protocol.
func (e *endpointSelector) Sent(uint64, uint64) {}

// Receive implements transport.Protocol.
func (e *endpointSelector) Receive(time.Time, transport.Packet) []socket.Datagram { return nil }

// Tick implements transport.Protocol. It runs the steps that are due.
func (e *endpointSelector) Tick(now time.Time) ([]socket.Datagram, time.Duration) {
	e.mu.Lock()
	if e.targets == nil || e.observedVersion != e.specVersion {
		e.mu.Unlock()
		return nil, observeInterval
	}
	idle := e.selector.Idle(now)
	d := e.selector.Step(now)
	if idle {
		e.mu.Unlock()
		return nil, d.Next.Sub(now)
	}
	targets := make(map[endpoint.ProbeRequest]probeTarget, len(d.Probes))
	for _, p := range d.Probes {
		if t, known := e.targets[p.Name]; known {
			targets[p] = t
		}
	}
	working := e.selector.Working()
	workingChanged := !maps.Equal(e.working, working)
	e.working = working
	e.mu.Unlock()
	for p, t := range targets {
		if err := e.probe(p, t); err != nil {
			e.log.Debug("cannot send endpoint probe", "gateway", p.Name, "addr", p.Addr, "err", err)
		}
	}
	if d.Moved {
		e.config.TriggerRound()
	}
	if d.Resolve {
		e.config.Resolve()
	}
	if workingChanged {
		e.workingFile.MarkDirty()
	}
	return nil, d.Next.Sub(now)
}

// probe sends an endpoint probe.
func (e *endpointSelector) probe(p endpoint.ProbeRequest, t probeTarget) error {
	onReply := func() {
		e.mu.Lock()
		e.selector.OnReply(p, time.Now())
		e.mu.Unlock()
		e.wake.Fire()
	}
	to := t.outerEndpoint(p.Addr)
	switch t.tunnel.Driver {
	case fabric.DriverVXLAN:
		return endpointprobe.SendVXLAN(to, t.frame, e.prober.NewOffPathProbe(health.GatewayID{Cluster: t.tunnel.Cluster, Gateway: t.tunnel.Gateway}, onReply))
	case fabric.DriverIPsec:
		return e.probes.ProbeIKE(to, onReply)
	}
	return e.probes.ProbeWireGuard(endpointprobe.Request{Keys: t.keys, From: uint16(t.tunnel.Port), To: to}, onReply)
}

// reason describes for users the endpoint of a gateway and why it is in use. addr is the address
// and port in use.
func (e *endpointSelector) reason(name, addr string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text := e.selector.Reason(name); text != "" {
		return text
	}
	r, known := e.remotes[name]
	switch {
	case !known:
		return ""
	case r.Endpoints == 0:
		return "no endpoint: the peer dials in"
	case len(r.Candidates) == 0:
		return "no endpoint of an address family of this node: the peer dials in"
	}
	candidate := r.Candidates[0]
	if t, known := e.targets[name]; known && t.candidateAddr(parseAddrPort(addr), r.Candidates) != candidate.Addr {
		return "the peer dialled in; its only endpoint is " + candidate.Text
	}
	return candidate.Text + ", its only endpoint"
}
