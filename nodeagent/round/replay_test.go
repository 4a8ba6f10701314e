package round_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/round/roundtest"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// node replays the observations of an agent. The recording has the status of other agents for the
// targets of the current spec.
type node struct {
	roundtest.Recording
	fabrics map[string]*fabric.Fabric
	keys    map[string]*fabric.Keys
}

func newNode(t *testing.T, r roundtest.Recording) *node {
	t.Helper()
	n := &node{Recording: r, fabrics: map[string]*fabric.Fabric{}, keys: map[string]*fabric.Keys{}}
	for digest, raw := range r.Fabrics {
		f, _, err := fabric.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		n.fabrics[digest] = f
		if own := f.Cluster(r.Cluster); own != nil {
			n.keys[digest] = keysOf(f, own)
		}
	}
	return n
}

// keysOf returns generated keys of a cluster, for all epochs of the fabric.
func keysOf(f *fabric.Fabric, own *fabric.Cluster) *fabric.Keys {
	out := &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: own.Name}
	for _, epoch := range f.Epochs {
		e := fabric.EpochKeys{Epoch: epoch, PSKSeed: fabric.Secret{byte(epoch)}, Gateways: map[string]fabric.Secret{}, Ed25519: map[string]fabric.Secret{}}
		for i, g := range own.Gateways {
			e.Gateways[g.Name], e.Ed25519[g.Name] = fabric.Secret{byte(i + 1), byte(epoch)}, fabric.Secret{byte(i + 1), byte(epoch)}
		}
		out.Epochs = append(out.Epochs, e)
	}
	return out
}

// parts is the state of one agent's protocols with other agents.
type parts struct {
	aim   *round.PeerSpec
	known map[health.Target]bool // targets of an earlier round, with a reply
}

// advance marks all current targets as known.
func (p *parts) advance() {
	p.known = map[health.Target]bool{}
	for _, target := range p.aim.Probing.Targets {
		p.known[target] = true
	}
}

// observe returns a recorded moment as an agent with the targets of p observes it.
func (n *node) observe(m roundtest.Moment, p *parts) round.Observed {
	in := round.Observed{
		Cluster: n.Cluster, Node: n.Node, StaleAfter: 30 * time.Second,
		Fabric: n.fabrics[m.Fabric], Digest: m.Fabric, Keys: n.keys[m.Fabric], Facts: m.Facts,
		Local: model.HostState{UnderlayMTU: 1500, Resolved: maps.Clone(m.Resolved)}, Peers: m.Peers,
	}
	in.Peers.Spec = p.aim
	if p.aim == nil {
		in.Peers.Links, in.Peers.Tunnels, in.Peers.RemoteEndpoints = health.Snapshot{}, nil, nil
		return in
	}
	self := health.GatewayID{Cluster: n.Cluster, Gateway: p.aim.Probing.Gateway}
	in.Peers.Links = blank(n.Cluster, p.aim).Merge(health.NewSnapshot(self, slices.DeleteFunc(slices.Clone(m.Peers.Links.Links), func(l health.Link) bool {
		return !p.known[l.Target]
	})))
	return in
}

// blank returns the snapshot of a prober with new targets.
func blank(cluster string, aim *round.PeerSpec) health.Snapshot {
	var links []health.Link
	for _, target := range aim.Probing.Targets {
		links = append(links, health.Link{Target: target, Liveness: health.Unproven})
	}
	return health.NewSnapshot(health.GatewayID{Cluster: cluster, Gateway: aim.Probing.Gateway}, links)
}

// copied returns a value after a round trip through JSON, as over the agent's socket.
func copied[T any](t *testing.T, value T) T {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// outcome is the result of a round, for comparison.
type outcome struct {
	Node  *round.DesiredNode
	Live  *model.ClusterState
	Moves []status.Move
	Next  string // the next state as JSON
}

// differ returns the differences between two outcomes; empty = none.
func differ(t *testing.T, a, b outcome) string {
	t.Helper()
	if reflect.DeepEqual(a, b) {
		return ""
	}
	lines := func(o outcome) []string {
		raw, err := json.MarshalIndent(o, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(raw), "\n")
	}
	return "outcomes differ\n" + cmp.Diff(lines(a), lines(b))
}

func outcomeOf(t *testing.T, next round.State, do round.Effects) outcome {
	t.Helper()
	raw, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	return outcome{Node: do.Node, Live: do.AnnounceExports, Moves: do.Moves, Next: string(raw)}
}

// plan makes the round of hawser-agent plan while an agent runs. It has a copy of the agent's state
// and the agent's status. Its own protocols have received nothing.
func (n *node) plan(t *testing.T, running round.State, m roundtest.Moment, p *parts, now time.Time) outcome {
	t.Helper()
	seen, own := copied(t, n.observe(m, p).Peers), &parts{aim: p.aim, known: p.known}
	next, do := round.StepUntilStable(copied(t, running), func() round.Observed {
		in := n.observe(m, own)
		alone := round.PeerStatus{Spec: own.aim, Tunnels: m.Peers.Tunnels, RemoteEndpoints: m.Peers.RemoteEndpoints}
		if own.aim != nil {
			alone.Links = blank(n.Cluster, own.aim)
		}
		in.Peers = alone.WithRunning(seen)
		return in
	}, func(a *round.PeerSpec) { own.aim = a }, now)
	return outcomeOf(t, next, do)
}

// counts has the numbers of events in replays. Tests require a minimum of each.
type counts struct{ rounds, urgent, moves, aims, retained, left, live int }

// replay makes all rounds of a node. It calls check for each round with its outcome and the
// previous state.
func (n *node) replay(t *testing.T, check func(i int, m roundtest.Moment, before round.State, p *parts, have outcome)) counts {
	t.Helper()
	var c counts
	p := &parts{}
	state := round.NewState(n.Cluster, round.Saved{ClusterStates: n.Saved}, n.Moments[0].At)
	for i, m := range n.Moments {
		if m.Urgent {
			next, do, ok := round.Reroute(state, n.observe(m, p), m.At)
			state, c.moves = next, c.moves+len(do.Moves)
			if ok {
				c.urgent++
			}
			continue
		}
		before, aimed := state, *p
		next, do := round.StepUntilStable(state, func() round.Observed { return n.observe(m, p) }, func(a *round.PeerSpec) { p.aim = a; c.aims++ }, m.At)
		if check != nil {
			check(i, m, before, &aimed, outcomeOf(t, next, do))
		}
		c.rounds, c.moves = c.rounds+1, c.moves+len(do.Moves)
		if len(next.RetiringGateways()) > 0 {
			c.retained++
		}
		if next.Last().Input.FormerShape != nil {
			c.left++
		}
		if do.AnnounceExports != nil {
			c.live++
		}
		state, _ = round.Applied(next)
		p.advance()
	}
	return c
}

func (c *counts) add(o counts) {
	c.rounds, c.urgent, c.moves, c.aims = c.rounds+o.rounds, c.urgent+o.urgent, c.moves+o.moves, c.aims+o.aims
	c.retained, c.left, c.live = c.retained+o.retained, c.left+o.left, c.live+o.live
}

// TestPlanIsRunAtRandom is TestPlanIsRun with random runs. Links fail and recover, gateways are
// removed and added, and the topology changes.
func TestPlanIsRunAtRandom(t *testing.T) {
	t.Parallel()
	var all counts
	for seed := range uint64(6) {
		n := newNode(t, invented(t, seed))
		all.add(n.replay(t, func(i int, m roundtest.Moment, before round.State, p *parts, have outcome) {
			if d := differ(t, have, n.plan(t, before, m, p, m.At)); d != "" && !t.Failed() {
				t.Errorf("seed %d, round %d: plan and run differ (-run +plan)\n%s", seed, i, d)
			}
		}))
	}
	t.Logf("%+v", all)
	if all.rounds < 200 || all.moves < 50 || all.urgent < 20 || all.aims < 20 || all.retained < 15 || all.left < 15 || all.live < 15 {
		t.Errorf("too few events: %+v", all)
	}
}

// TestStateIsAll checks that at least one round depends on each field of the state. So
// TestPlanIsRun and TestPlanIsRunAtRandom fail if a field is missing.
func TestStateIsAll(t *testing.T) {
	t.Parallel()
	needed := map[string]bool{}
	for _, field := range []string{"selector", "transition", "retiring", "restored", "announcement"} {
		for seed := range uint64(6) {
			n := newNode(t, invented(t, seed))
			n.replay(t, func(_ int, m roundtest.Moment, before round.State, p *parts, have outcome) {
				if needed[field] {
					return
				}
				less := map[string]json.RawMessage{}
				raw, err := json.Marshal(before)
				if err = cmpErr(err, json.Unmarshal(raw, &less)); err != nil {
					t.Fatal(err)
				}
				fresh, err := json.Marshal(round.NewState(n.Cluster, round.Saved{}, m.At))
				parts := map[string]json.RawMessage{}
				if err = cmpErr(err, json.Unmarshal(fresh, &parts)); err != nil {
					t.Fatal(err)
				}
				less[field] = parts[field]
				var state round.State
				raw, err = json.Marshal(less)
				if err = cmpErr(err, json.Unmarshal(raw, &state)); err != nil {
					t.Fatal(err)
				}
				got := n.plan(t, state, m, p, m.At)
				needed[field] = !reflect.DeepEqual(got.Node, have.Node) || !reflect.DeepEqual(got.Live, have.Live)
			})
			if needed[field] {
				break
			}
		}
		if !needed[field] {
			t.Errorf("no round depends on %s", field)
		}
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestStepChangesNothing checks that a step does not modify the previous state: a repeated step has
// the same result.
func TestStepChangesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, invented(t, 3))
	n.replay(t, func(i int, m roundtest.Moment, before round.State, p *parts, have outcome) {
		now := &parts{aim: p.aim, known: p.known}
		next, do := round.StepUntilStable(before, func() round.Observed { return n.observe(m, now) }, func(a *round.PeerSpec) { now.aim = a }, m.At)
		if d := differ(t, have, outcomeOf(t, next, do)); d != "" && !t.Failed() {
			t.Errorf("round %d, made twice (-first +second)\n%s", i, d)
		}
	})
}

// TestRestartKeepsLinks checks that an agent that starts from the saved state selects the same
// links.
func TestRestartKeepsLinks(t *testing.T) {
	t.Parallel()
	n := newNode(t, invented(t, 5))
	n.replay(t, func(i int, m roundtest.Moment, before round.State, p *parts, have outcome) {
		if before.Last().Node == nil {
			return
		}
		saved := round.Saved{Paths: copied(t, before.SavedPaths()), Shape: copied(t, before.SavedShape()), ClusterStates: copied(t, before.SavedClusterStates())}
		now := &parts{}
		next, do := round.StepUntilStable(round.NewState(n.Cluster, saved, m.At), func() round.Observed { return n.observe(m, now) }, func(a *round.PeerSpec) { now.aim = a }, m.At)
		for remote, path := range next.Last().Input.Paths {
			before, known := before.Last().Input.Paths[remote]
			if known && before.Via == "" && path.Via == "" && !before.Down && !path.Down && before.Local != path.Local {
				for _, move := range do.Moves {
					if move.Cluster == remote && move.Kind != "dead" && move.Kind != "removed" {
						t.Errorf("round %d: a restart moved %s: %+v", i, remote, move)
					}
				}
			}
		}
	})
}

// invented returns a random recording of one node, with a topology from the tests of projection.
func invented(t *testing.T, seed uint64) roundtest.Recording {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	archive, err := txtar.ParseFile("../projection/testdata/ordinals.txtar")
	if err != nil {
		t.Fatal(err)
	}
	whole, facts := &fabric.Fabric{}, map[string]model.Facts{}
	for _, f := range archive.Files {
		if cluster, ok := strings.CutSuffix(f.Name, ".facts.yaml"); ok {
			var read model.Facts
			err = yaml.UnmarshalStrict(f.Data, &read)
			facts[cluster] = read
		} else if f.Name == "fabric.yaml" {
			err = yaml.UnmarshalStrict(f.Data, whole)
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	pods := fabric.Export{Namespace: "sample", Name: "db", Type: fabric.Headless, Ports: []fabric.Port{{Name: "sql", Protocol: "TCP", Port: 5432}}}
	for _, c := range whole.Clusters {
		pods.Clusters = append(pods.Clusters, fabric.ExportCluster{Name: c.Name})
	}
	whole.Exports = append(whole.Exports, pods)
	own := whole.Clusters[r.IntN(len(whole.Clusters))].Name
	nodes := facts[own].Nodes
	out := roundtest.Recording{Cluster: own, Node: nodes[r.IntN(len(nodes))].Name, Fabrics: map[string][]byte{}, Saved: round.SavedClusterStates{}}
	for i, c := range whole.Clusters {
		host := model.ExportHost{Name: "db-0", IPs: []netip.Addr{netip.AddrFrom4([4]byte{242, byte(i + 1), 0, 40})}}
		if c.Name != own {
			out.Saved[c.Name] = model.ClusterState{Cluster: c.Name, Exports: []model.ExportState{{Namespace: "sample", Name: "db", Ready: true, Hosts: []model.ExportHost{host}}}}
		}
	}
	w := &weather{rand: r, own: own, node: out.Node, ranks: map[string]health.Rank{}}
	now, digest := time.Unix(1_700_000_000, 0).UTC(), ""
	var shown *fabric.Fabric
	for i := range 70 {
		if i == 0 || r.IntN(12) == 0 {
			shown = some(whole, r, i > 0)
			raw, err := fabric.Encode(shown)
			if err != nil {
				t.Fatal(err)
			}
			packed, err := fabric.Compress(raw)
			if err != nil {
				t.Fatal(err)
			}
			if shown, digest, err = fabric.Decode(packed); err != nil {
				t.Fatal(err)
			}
			out.Fabrics[digest] = packed
		}
		now = now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		out.Moments = append(out.Moments, roundtest.Moment{
			At: now, Fabric: digest, Urgent: i > 0 && r.IntN(4) == 0, Facts: w.facts(facts[own]), Peers: w.peers(whole, shown, i > 10),
		})
	}
	return out
}

// some returns a copy of a fabric. If change is set, it lacks random gateways and may have another
// shape.
func some(whole *fabric.Fabric, r *rand.Rand, change bool) *fabric.Fabric {
	f := *whole
	f.Clusters = slices.Clone(whole.Clusters)
	if !change {
		return &f
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if len(c.Gateways) > 1 && r.IntN(3) == 0 {
			at := r.IntN(len(c.Gateways))
			c.Gateways = slices.Delete(slices.Clone(c.Gateways), at, at+1)
		}
	}
	if r.IntN(2) == 0 {
		f.Shape = fabric.Shape{Mode: fabric.ModeHub, Hubs: []string{f.Clusters[r.IntN(len(f.Clusters))].Name}}
	}
	return &f
}

// weather generates the random observations of a node.
type weather struct {
	rand      *rand.Rand
	own, node string
	ranks     map[string]health.Rank // of links, as gateway-cluster/gateway
}

// facts changes the readiness of endpoints at random.
func (w *weather) facts(f model.Facts) model.Facts {
	f.Services = slices.Clone(f.Services)
	for i := range f.Services {
		f.Services[i].Endpoints = slices.Clone(f.Services[i].Endpoints)
		for k := range f.Services[i].Endpoints {
			f.Services[i].Endpoints[k].Ready = w.rand.IntN(4) > 0
		}
	}
	return f
}

// peers returns links to all gateways of the run. Most links are unchanged. If received is set, it
// also returns states of other clusters.
func (w *weather) peers(whole, f *fabric.Fabric, received bool) round.PeerStatus {
	out := round.PeerStatus{ClusterStates: map[string]model.ClusterState{}, PathMTUs: map[string]int{}, Tunnels: map[string][]migration.TunnelID{}, RemoteEndpoints: map[string]model.RemoteEndpoint{}}
	own := whole.Cluster(w.own)
	gateway, device := "", ""
	if g := own.GatewayOn(w.node); g != nil {
		gateway = g.Name
	}
	rank := func(near, far string) health.Rank {
		name := near + "-" + far
		if have, known := w.ranks[name]; !known || w.rand.IntN(10) == 0 {
			if w.ranks[name] = health.Rank(w.rand.IntN(int(health.Good) + 1)); !known || have == health.Down {
				w.ranks[name] = health.Good
			}
		}
		return w.ranks[name]
	}
	type advert struct {
		Rank  health.Rank `json:"rank"`
		Uses  bool        `json:"uses"`
		Takes bool        `json:"acceptsTransit"`
	}
	type link struct {
		health.Link
		Reach    map[uint64]advert `json:"reach,omitempty"`
		HasReach bool              `json:"hasReach"`
		Uses     bool              `json:"uses"`
		Takes    bool              `json:"acceptsTransit"`
	}
	var links []link
	for i := range whole.Clusters {
		c := &whole.Clusters[i]
		for _, g := range c.Gateways {
			peer := health.GatewayID{Cluster: c.Name, Gateway: g.Name}
			switch {
			case c.Name != w.own && gateway != "":
				r := rank(gateway, peer.String())
				links = append(links, link{Link: linkTo(peer, own.Gateway(gateway).Addresses[0], g.Addresses[0], device, r), Uses: w.rand.IntN(3) == 0, Takes: true})
			case c.Name == w.own && g.Name != gateway:
				reach := map[uint64]advert{}
				for k := range whole.Clusters {
					for _, far := range whole.Clusters[k].Gateways {
						if name := whole.Clusters[k].Name; name != w.own {
							reach[stablehash.Sum64(name+"\n"+far.Name)] = advert{Rank: rank(g.Name, name+"/"+far.Name), Takes: true}
						}
					}
				}
				links = append(links, link{Link: linkTo(peer, netip.Addr{}, netip.Addr{}, "hw-vx0", health.Good), Reach: reach, HasReach: true})
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"self": health.GatewayID{Cluster: w.own, Gateway: gateway}, "links": links})
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(raw, &out.Links); err != nil {
		panic(err)
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == w.own || !received || w.rand.IntN(8) == 0 {
			continue
		}
		live := model.ClusterState{Cluster: c.Name, Shape: projection.ShapeDigest(f.Shape), Transit: &model.TransitAdvert{}}
		if w.rand.IntN(4) == 0 {
			live.Shape = ""
		}
		for _, e := range f.Exports {
			live.Exports = append(live.Exports, model.ExportState{Namespace: e.Namespace, Name: e.Name, Ready: w.rand.IntN(3) > 0})
		}
		out.ClusterStates[c.Name] = live
		for _, g := range c.Gateways {
			if name := c.Name + "/" + g.Name; w.rand.IntN(6) == 0 {
				out.PathMTUs[name] = 1200 + w.rand.IntN(100)
			}
		}
	}
	return out
}

func linkTo(peer health.GatewayID, source, addr netip.Addr, device string, rank health.Rank) health.Link {
	l := health.Link{Target: health.Target{Peer: peer, Source: source, Addr: addr, Device: device}, Rank: rank, Liveness: health.Proven}
	if rank == health.Down {
		l.Liveness = health.Dead
	}
	if rank < health.Good {
		l.Reason = fmt.Sprintf("%s is %s", peer, rank)
	}
	return l
}
