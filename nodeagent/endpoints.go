package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/endpoint"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/ipsec"
	"hawser.dev/hawser/nodeagent/kernel"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/scout"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// watched is how often it is looked where packets of the gateways that have a
// choice of endpoints come from.
const watched = 5 * time.Second

// endpoints carries out what the machine of package endpoint decides.
type endpoints struct {
	log     *slog.Logger
	path    string // of what is kept for the next run
	look    func() // asks for a pass
	resolve func() // asks for names to be looked up
	links   func() health.Snapshot
	secured func() map[string]ipsec.State
	probe   func(health.Peer, func()) []byte // makes a probe for another way
	apart   func(string) (begun, done bool)  // how far a pair has gone aside
	meters  func(context.Context, []desired.Cable) ([]kernel.Meter, error)
	scout   *scout.Scout
	wake    bell.Bell // there may be something to do
	save    bell.Bell // there may be something to keep

	mu      sync.Mutex
	machine *endpoint.Machine
	reaches map[string]project.Reach // with a choice, by cluster/gateway
	asked   asked
	cables  map[string]peerPorts // by cluster/gateway
	ways    map[string]project.Way
	kept    map[string]netip.AddrPort
}

// asked is what the reaches were made from.
type asked struct {
	fabric   *fabric.Fabric
	resolved map[string][]netip.Addr
	nodes    []project.Node
}

func newEndpoints(config Config, log *slog.Logger) *endpoints {
	return &endpoints{
		log: log, path: config.statePath("endpoints.json"), scout: scout.New(log),
		wake: bell.New(), save: bell.New(),
		machine: endpoint.New(nil),
	}
}

// restore begins with the places of the run before.
func (e *endpoints) restore() {
	raw, err := os.ReadFile(e.path)
	if err == nil {
		err = json.Unmarshal(raw, &e.kept)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.log.Warn("endpoints of the run before not read", "err", err)
		e.kept = nil
	}
	e.machine = endpoint.New(maps.Clone(e.kept))
}

// follow adapts the search to the inputs in force, and gives what was found.
func (e *endpoints) follow(in project.Input) map[string]project.Way {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	next := asked{fabric: in.Fabric, resolved: in.Local.Resolved, nodes: in.Facts.Nodes}
	if next.fabric != e.asked.fabric || !reflect.DeepEqual(next, e.asked) {
		e.asked = next
		e.set(in, now)
	}
	e.ways = e.machine.Ways()
	return e.ways
}

// equip takes what questions need from what the node should have.
func (e *endpoints) equip(in project.Input, n *node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in.Keys != nil {
		e.cables = portsOf(in, n)
	}
	e.wake.Ring()
}

// set gives the machine the gateways that have a choice: several endpoints, or a
// name, which may come to stand for another address.
func (e *endpoints) set(in project.Input, now time.Time) {
	e.reaches = map[string]project.Reach{}
	own, held := in.Fabric.Cluster(in.Cluster), tunnelAddresses(in.Fabric)
	var remotes []endpoint.Remote
	for _, r := range project.Reaches(in) {
		name := r.Cluster + "/" + r.Gateway.Name
		e.reaches[name] = r
		if len(r.Candidates) < 2 && !r.Named {
			continue
		}
		remotes = append(remotes, endpoint.Remote{
			Name: name, Candidates: r.Candidates, Asks: r.Driver != fabric.DriverVXLAN,
			Leads: leads(in, own.GatewayOn(in.Node), r, held), Aside: r.Driver == fabric.DriverIPsec,
		})
	}
	e.machine.Set(remotes, now)
}

// aside reports whether a pair should go over a second cable for now.
func (e *endpoints) aside(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Ways()[name].Next.IsValid()
}

// run carries out what the machine decides until ctx ends.
func (e *endpoints) run(ctx context.Context) error {
	defer e.scout.Close()
	e.wake.Loop(ctx, func() time.Duration { return min(e.step(ctx, time.Now()), watched) })
	return nil
}

// step does what is due, and says how long until the next time.
func (e *endpoints) step(ctx context.Context, now time.Time) time.Duration {
	e.see(ctx, now)
	e.mu.Lock()
	if e.cables == nil {
		e.mu.Unlock()
		return watched
	}
	asks, next := e.machine.Step(now)
	moved, lost := !maps.Equal(e.ways, e.machine.Ways()), e.machine.Unresolved()
	questions := make(map[endpoint.Ask]peerPorts, len(asks))
	for _, a := range asks {
		if p, known := e.cables[a.Name]; known {
			questions[a] = p
		}
	}
	changed := !maps.Equal(e.kept, e.machine.Kept())
	e.mu.Unlock()
	for a, p := range questions {
		if err := e.ask(p, a); err != nil {
			e.log.Debug("gateway not asked", "gateway", a.Name, "addr", a.Addr, "err", err)
		}
	}
	if moved {
		e.look()
	}
	if lost {
		e.resolve()
	}
	if changed {
		e.save.Ring()
	}
	return next.Sub(now)
}

func (e *endpoints) answered(a endpoint.Ask) {
	e.mu.Lock()
	e.machine.Answered(a, time.Now())
	e.mu.Unlock()
	e.wake.Ring()
}

// see tells the machine how the links are, and where the other ends are.
func (e *endpoints) see(ctx context.Context, now time.Time) {
	e.mu.Lock()
	var names []string
	var cables []desired.Cable
	for name := range e.machine.Ways() {
		// Other drivers know no other place than the one that they were told.
		if p, known := e.cables[name]; known && p.cable.Driver == fabric.DriverWireguard {
			names, cables = append(names, name), append(cables, p.cable)
		}
	}
	e.mu.Unlock()
	meters, err := e.meters(ctx, cables)
	if err != nil {
		e.log.Debug("peers not read", "err", err)
	}
	links := e.links().Links
	e.mu.Lock()
	defer e.mu.Unlock()
	at := map[string]netip.AddrPort{}
	for i := range meters {
		at[names[i]] = e.cables[names[i]].base(meters[i].Endpoint)
	}
	secured := e.secured()
	for name, p := range e.cables {
		if state, known := secured[p.cable.Connection()]; p.ike != nil && known && state.Endpoint.IsValid() {
			at[name] = p.candidate(state.Endpoint, e.reaches[name].Candidates)
		}
	}
	for i := range links {
		if links[i].Target.Device == "" {
			name := links[i].Target.Peer.String()
			seen := endpoint.Seen{Alive: links[i].State == status.Connected, At: at[name]}
			if e.reaches[name].Driver != fabric.DriverWireguard {
				seen.Alive = links[i].Alive() // after a restart nothing is tried with a link that may live
			}
			seen.Begun, seen.Apart = e.apart(name)
			e.machine.See(name, seen, now)
		}
	}
}

// keep writes what works to the state folder when that changed. It has a goroutine
// of its own, as a disk may hang.
func (e *endpoints) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.save:
		}
		e.mu.Lock()
		kept := e.machine.Kept()
		e.mu.Unlock()
		raw, err := json.Marshal(kept)
		if err == nil {
			err = atomicfile.Write(e.path, raw, 0o600)
		}
		if err != nil {
			e.log.Debug("endpoints not saved", "err", err)
			continue
		}
		e.mu.Lock()
		e.kept = kept
		e.mu.Unlock()
	}
}

// why says where a gateway is reached, which is the address and port given, and
// why there.
func (e *endpoints) why(name, at string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text := e.machine.Why(name); text != "" {
		return text
	}
	r, known := e.reaches[name]
	switch {
	case !known:
		return ""
	case len(r.Gateway.Endpoints) == 0:
		return "no endpoint: it dials in"
	case len(r.Candidates) == 0:
		return "no endpoint of a family that this node has: it dials in"
	}
	only := r.Candidates[0]
	p, known := e.cables[name]
	if known && !p.isAt(at, only) {
		return "it dialled in; " + only.Text + " is its only endpoint"
	}
	return only.Text + ", its only endpoint"
}
