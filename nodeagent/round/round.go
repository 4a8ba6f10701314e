// Package round decides what a node does next. One pure function, Step, takes what was
// remembered, what is observed and the time, and gives what to remember and what to do:
// the state that the node should have, and what other agents learn. The agent that
// runs calls it in each round, the dry run of hawser-agent plan calls it with what that
// agent remembers and observes, and the tests replay rounds. It knows no clock,
// randomness or I/O, and logs nothing.
//
// What a round goes through, in this order: the topology that clusters leave
// (transition), gateways that left the fabric and are still used (removals), what the
// parts that talk to other agents should look at (Aim), the link to each other cluster
// (choice), whom to hear (Feeds), which packets to try (Sizes), what was heard before the
// start (heard), exports that clusters made (exports), the projection (package project),
// and what other clusters learn of this cluster's exports (announcement).
package round

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Observed is what an agent sees at one moment.
type Observed struct {
	Cluster string `json:"Cluster"` // of this node
	Node    string `json:"Node"`
	// Stale is how long counts what a cluster said that is not heard any more.
	Stale time.Duration `json:"Stale"`
	// Fabric, keys and facts are those in force; Digest is that of the fabric.
	Fabric *fabric.Fabric  `json:"Fabric"`
	Digest string          `json:"Digest"`
	Keys   *fabric.Keys    `json:"-"`
	Facts  model.Facts     `json:"Facts"`
	Local  model.HostState `json:"Local"` // but for RemoteEndpoints
	Peers  PeerStatus      `json:"Peers"`
}

// PeerStatus is what the parts see that talk to other agents.
type PeerStatus struct {
	Spec     *PeerSpec                     `json:"Aim"` // what they looked at; nil = nothing yet
	Links    health.Snapshot               `json:"Links"`
	Live     map[string]model.ClusterState `json:"Live"`   // by remote cluster, as in project.Input
	PathMTUs map[string]int                `json:"Narrow"` // by remote gateway, what passes where that is less than its tunnel's MTU, in bytes
	// Tunnels are those of each pair that is not just at the one that it should have.
	Tunnels map[string][]migration.TunnelID `json:"Tunnels"`
	// RemoteEndpoints says where remote gateways with a choice of endpoints are reached.
	RemoteEndpoints map[string]model.RemoteEndpoint `json:"Ways"` // as records of rounds name it
	// Observed is from where what those of them sends arrives that want to know.
	Observed endpoint.ObservedAddrs `json:"Seen"`
}

// PeerSpec is what the parts that talk to other agents should look at.
type PeerSpec struct {
	Probing ProbeSpec              `json:"Probing"`
	Pairs   []migration.PairConfig `json:"Pairs"` // each with the tunnel that it should have
	Remotes []Remote               `json:"Remotes"`
}

// OwnGateway names this node's gateway as cluster/gateway; empty when it is none.
func (a *PeerSpec) OwnGateway(cluster string) string {
	if a.Probing.Gateway == "" {
		return ""
	}
	return cluster + "/" + a.Probing.Gateway
}

func (a *PeerSpec) equal(o *PeerSpec) bool {
	if o == nil {
		return false
	}
	return samePairs(a.Pairs, o.Pairs) && slices.EqualFunc(a.Remotes, o.Remotes, Remote.equal) && reflect.DeepEqual(a.Probing, o.Probing)
}

func samePairs(a, b []migration.PairConfig) bool {
	return slices.EqualFunc(a, b, func(a, b migration.PairConfig) bool {
		return a.Name == b.Name && a.Want == b.Want && a.Secondary == b.Secondary && a.Source == b.Source && a.Addr == b.Addr &&
			(a.Keys == nil) == (b.Keys == nil) && maps.EqualFunc(a.Keys, b.Keys, slices.Equal[[]int])
	})
}

func (r Remote) equal(o Remote) bool {
	return r.Name == o.Name && r.Improves == o.Improves && r.CanProbe == o.CanProbe && r.NeedsSecondary == o.NeedsSecondary && r.Driver == o.Driver &&
		r.Endpoints == o.Endpoints && r.HasAlternatives == o.HasAlternatives && slices.Equal(r.Candidates, o.Candidates)
}

// DesiredNode is the state that a node should have.
type DesiredNode struct {
	desired.State
	// Decommission says that everything of Hawser's is to go.
	Decommission bool
}

// Projection is a desired state and what it was made from.
type Projection struct {
	Input    projection.Input
	Node     *DesiredNode
	Problems []projection.Problem
}

// Outcome is what a round came to, once it was carried out; Node is nil before the first.
type Outcome struct {
	Report converge.Report
	Projection
	Leaving []health.GatewayID // gateways that left the fabric and are kept
}

// State is what one round leaves to the next. A State never changes; those that follow
// from one another share caches, so that all steps from it are made in one goroutine.
// Its JSON has all that a dry run beside the agent has to know, and no secret.
type State struct {
	Choice       *pathSelector      `json:"choice"`
	Transition   transition         `json:"transition"`
	Removals     retiringGateways   `json:"removals"`
	Heard        restoredLive       `json:"heard"`
	Announcement exportAnnouncement `json:"announcement"`
	Found        endpoint.Registry  `json:"found,omitzero"`
	HoldDown     holdDown           `json:"back,omitempty"`

	last       Projection
	generation int
	rerouted   bool             // routes of something else than last are in force
	routed     projection.Input // what the routes were made from last
	applied    *DesiredNode     // of the last round that came to its end; nil = none did yet
	cache      *cache
}

// cache spares doing again what would come to the same.
type cache struct {
	slots   projection.Memo
	exports effective
	asked   remotesInput
	remotes []Remote
}

// KeptLive is what other clusters said, by their names.
type KeptLive map[string]model.ClusterState

// Saved is what an agent remembers of the run before.
type Saved struct {
	Paths map[string]KeptPath
	Shape KeptShape
	Live  KeptLive
	Found map[string][]model.DiscoveredEndpoint
	// Carries says that the agent before left tunnels, over which traffic goes on.
	Carries bool
}

// NewState gives the state of an agent that starts now.
func NewState(cluster string, kept Saved, now time.Time) State {
	return State{
		Choice:       restoreChoice(cluster, kept.Paths, now),
		Transition:   restoreTransition(kept.Shape, now),
		Heard:        restoredLive{Began: now, Kept: kept.Live},
		Announcement: exportAnnouncement{Carries: kept.Carries},
		Found:        endpoint.Restore(kept.Found),
	}
}

// Effects is what a step wants to be done.
type Effects struct {
	// PeerSpec is set alone where the parts that talk to other agents looked at something
	// else: they are to look at this, and the same step is made anew with what they see.
	PeerSpec *PeerSpec

	Moves     []status.Move         // that were decided just now
	Links     map[string]model.Path // the chosen link to each neighbour, which the other ends learn
	Shape     string                // what other clusters learn of the topology that this one uses
	Advertise *model.TransitAdvert  // and of what its links are worth for transit
	Feeds     FeedSpec
	FeedsErr  error // why Feeds is not whole: those before stay
	Sizes     PathMTUSpec
	// Publish is what other clusters are to learn of this one's exports; nil = nothing new.
	Publish *model.ClusterState
	// PublishEndpoints is what other clusters learn of where gateways are.
	PublishEndpoints *model.EndpointAdvert
	Leaving          bool          // this node's own gateway left the fabric, and is kept for a while
	SaveLive         bool          // there is something new to keep of what other clusters say
	Requeue          time.Duration // after this another round is due, whatever happens; 0 = none
	// Node is the desired state, the same one as long as nothing changed, and Digest its
	// name. Fresh says that it is another one than before.
	Node    *DesiredNode
	Digest  string
	Changed bool
}

// maxSpecTries bounds how often a round is begun anew because of what is looked at.
const maxSpecTries = 4

// StepUntilStable makes one round: it observes and steps, and has aim set what is looked at, until
// what was observed is what the round needs. Should that change each time, the last
// observation has to do.
func StepUntilStable(previous State, observe func() Observed, aim func(*PeerSpec), now time.Time) (State, Effects) {
	for tries := 1; ; tries++ {
		in := observe()
		next, do := Step(previous, in, now)
		if do.PeerSpec == nil {
			return next, do
		}
		aim(do.PeerSpec)
		if tries == maxSpecTries {
			in.Peers.Spec = do.PeerSpec
			return Step(previous, in, now)
		}
	}
}

// WithRunning gives what an agent beside the one that runs observes: what that one does, and where
// it looks at something else, what this one does.
func (p PeerStatus) WithRunning(running PeerStatus) PeerStatus {
	p.Links = p.Links.Merge(running.Links)
	p.Live, p.PathMTUs, p.Observed = running.Live, running.PathMTUs, running.Observed
	if p.Spec != nil && running.Spec != nil && samePairs(p.Spec.Pairs, running.Spec.Pairs) {
		p.Tunnels = running.Tunnels
	}
	p.RemoteEndpoints = maps.Clone(p.RemoteEndpoints)
	for name := range p.RemoteEndpoints {
		if at, known := running.RemoteEndpoints[name]; known {
			p.RemoteEndpoints[name] = at
		}
	}
	return p
}

// again asks for another round after a time at the latest; 0 = for none.
func (e *Effects) again(after time.Duration) {
	if after > 0 {
		e.Requeue = min(cmp.Or(e.Requeue, after), after)
	}
}

// Step makes one round. Where Effects.Aim is set, next is previous.
func Step(previous State, in Observed, now time.Time) (next State, do Effects) {
	next = previous
	if next.cache == nil {
		next.cache = &cache{}
	}
	next.Transition = next.Transition.follow(in.Fabric, in.Peers.Live, now)
	next.Removals = next.Removals.follow(in.Fabric, func(f *fabric.Fabric, p health.GatewayID) bool {
		return len(next.Choice.users(f, in.Peers.Links, p)) > 0
	}, now)
	f := next.Removals.merged
	next.Found, do.Requeue = next.Found.Update(f, in.Cluster, in.Facts.Nodes, in.Peers.Live, now)
	in.Local.Discovered = next.Found.Endpoints()
	do.PublishEndpoints = endpoint.BuildAdvert(f, in.Cluster, in.Facts, in.Local.Resolved, in.Peers.Live, in.Peers.Observed)

	aim := PeerSpec{Probing: probesOf(f, next.Transition.Before, in.Facts.Nodes, in.Cluster, in.Node)}
	aim.Pairs = pairsOf(in, f, aim.Probing, in.Peers.RemoteEndpoints)
	aim.Remotes = next.cache.remotesOf(projection.Input{
		Fabric: f, Keys: in.Keys, Cluster: in.Cluster, Node: in.Node, Facts: in.Facts, Local: in.Local, FormerShape: next.Transition.Before,
	})
	if !aim.equal(in.Peers.Spec) {
		return previous, Effects{PeerSpec: &aim}
	}

	w := next.selectPaths(in, f, now, &do)
	do.Leaving = next.IsRetiring(in.Cluster, in.Node)
	if len(next.Removals.Leaving) > 0 || next.Transition.Before != nil {
		do.again(recheck)
	}
	do.Feeds, do.FeedsErr = feedsOf(in, f, w.remote)
	do.Sizes = sizesOf(aim.OwnGateway(in.Cluster), aim.Probing, next.last.Node, w.links)

	input := projection.Input{
		Fabric: f, Digest: in.Digest, Keys: in.Keys, Cluster: in.Cluster, Node: in.Node, Facts: in.Facts, Local: in.Local,
		Paths: w.remote, GatewayPaths: w.own, FormerShape: next.Transition.Before, Live: in.Peers.Live, Memo: &next.cache.slots,
	}
	input.Local.RemoteEndpoints = in.Peers.RemoteEndpoints
	next.Heard, input.PeersSynced = next.Heard.follow(len(f.Clusters)-1, in.Peers.Live, in.Stale, now)
	input.RestoredLive = next.Heard.Kept
	// What the previous agent saved stops counting at these times, even if nothing else happens.
	do.again(next.Choice.Began.Add(SettleTime).Sub(now))
	do.again(next.Heard.Began.Add(in.Stale).Sub(now))
	do.SaveLive = !reflect.DeepEqual(previous.Heard.live, in.Peers.Live)
	input.Tunnels = tunnelsOf(in, aim.Probing, in.Peers.Tunnels)
	input.Fabric, input.MCSDecision = next.cache.exports.follow(input)
	if next.last.Node == nil || next.rerouted || !SameInput(next.last.Input, input) {
		state, problems := projection.Desired(input)
		next.last = Projection{Input: input, Node: &DesiredNode{State: state, Decommission: in.Fabric.Decommission}, Problems: problems}
		next.generation++
		next.rerouted, next.routed = false, input
		next.Announcement, do.Publish = next.Announcement.begin(projection.ClusterState(input))
		do.Changed = true
	}
	do.Node, do.Digest = next.last.Node, in.Digest+"-"+strconv.Itoa(next.generation)
	return next, do
}

// Reroute decides the links anew, and nothing else, for routes that must not wait for a
// whole round. It gives ok false where nothing moved since the last projection or
// reroute; otherwise Routes gives the routes.
func Reroute(previous State, in Observed, now time.Time) (next State, do Effects, ok bool) {
	next = previous
	if next.last.Node == nil {
		return previous, do, false
	}
	w := next.selectPaths(in, next.last.Input.Fabric, now, &do)
	if !next.rerouted && maps.Equal(w.remote, next.last.Input.Paths) && maps.Equal(w.own, next.last.Input.GatewayPaths) {
		return next, do, false
	}
	next.rerouted, next.routed = true, next.last.Input
	next.routed.Paths, next.routed.GatewayPaths = w.remote, w.own
	return next, do, true
}

// Routes gives the routes, and nothing else, of the links that were decided last. While
// the last projection is not in force, they have those that it has no more, too: a whole
// round ends what comes in from others first, which would leave unencrypted otherwise.
func (s State) Routes() *DesiredNode {
	routes := projection.Routes(s.routed)
	if s.applied != nil && s.applied != s.last.Node {
		wanted := make(map[string]bool, len(s.last.Node.Routes))
		for _, r := range slices.Concat(s.last.Node.Routes, routes) {
			wanted[r.Key()] = true
		}
		for _, r := range s.applied.Routes {
			if !wanted[r.Key()] {
				routes = append(routes, r)
			}
		}
	}
	return &DesiredNode{State: desired.State{Routes: routes}}
}

// Applied follows a round that came to its end; live is what other clusters are to be
// told now, nil = nothing new.
func Applied(previous State) (next State, live *model.ClusterState) {
	next = previous
	next.applied = previous.last.Node
	next.Announcement, live = next.Announcement.applied()
	return next, live
}

// selectPaths takes the best link to each other cluster.
func (s *State) selectPaths(in Observed, f *fabric.Fabric, now time.Time, do *Effects) paths {
	v := s.snapshot(in.Cluster, in.Node, f, in.Peers.Links.WithRemoved(s.Removals.Leaving))
	v.narrow = in.Peers.PathMTUs
	next, w := s.Choice.next(v, in.Peers.Live, now)
	var again time.Duration
	s.HoldDown, again = s.HoldDown.apply(next.Began, s.Choice.Last, w.remote, now)
	do.again(again)
	s.Choice, s.Transition.Former = next, w.former
	do.Moves, do.Links, do.Advertise = next.newMoves, w.links, w.advertise
	if !w.former {
		do.Shape = projection.ShapeDigest(f.Shape)
	}
	w.limit(v.gateway, v.narrow)
	return w
}

func (s *State) snapshot(cluster, node string, f *fabric.Fabric, links health.Snapshot) nodeView {
	return nodeView{fabric: f, cluster: cluster, gateway: gatewayOf(f, cluster, node), links: links, before: s.Transition.Before}
}

// Initialized reports whether this is a state that Begin and Step made, and not the zero one:
// what an agent of another version tells may lack what this one needs.
func (s State) Initialized() bool { return s.Choice != nil }

// Last gives the last projection; its Node is nil before the first.
func (s State) Last() Projection { return s.last }

// RoutedInput gives what the routes that are in force were made from; its Fabric is nil
// before the first projection.
func (s State) RoutedInput() projection.Input { return s.routed }

// RetiringGateways names the gateways that left the fabric and are kept.
func (s State) RetiringGateways() []health.GatewayID { return s.Removals.Leaving }

// IsRetiring reports whether a node's gateway left the fabric, and is kept.
func (s State) IsRetiring(cluster, node string) bool {
	return slices.ContainsFunc(s.Removals.Gateways, func(m members) bool {
		return m.Cluster == cluster && slices.ContainsFunc(m.Gateways, func(g fabric.Gateway) bool {
			return g.Node == node && slices.Contains(s.Removals.Leaving, health.GatewayID{Cluster: cluster, Gateway: g.Name})
		})
	})
}

// KeptPaths, KeptShape and KeptLive give what the next run has to know, as in Kept.
func (s State) KeptPaths() map[string]KeptPath { return s.Choice.kept() }
func (s State) KeptShape() KeptShape           { return s.Transition.kept() }
func (s State) KeptLive() KeptLive             { return s.Heard.kept() }

// KeptFound gives the endpoints of other clusters' gateways that were found, as in Kept.
func (s State) KeptFound() map[string][]model.DiscoveredEndpoint { return s.Found.Saved() }

// Paths gives the links in use, as the last projection or reroute has them, and the last
// moves. links is what the prober says now.
func (s State) Paths(in projection.Input, links health.Snapshot) ([]status.Path, []status.Move) {
	return s.Choice.state(s.snapshot(in.Cluster, in.Node, in.Fabric, links))
}

// Users names the clusters whose traffic this node's gateway carries, each with how that
// is known, and needed those of them that have no other way.
func (s State) Users(in projection.Input, links health.Snapshot) (users []User, needed []string) {
	v := s.snapshot(in.Cluster, in.Node, in.Fabric, links)
	return s.Choice.users(in.Fabric, links, health.GatewayID{Cluster: in.Cluster, Gateway: v.gateway}), s.Choice.needed(v, in.Live)
}

// SameInput compares by identity first, as most inputs are shared and only
// replaced as a whole.
func SameInput(a, b projection.Input) bool {
	return a.Fabric == b.Fabric && a.Keys == b.Keys &&
		a.FormerShape == b.FormerShape && maps.Equal(a.Paths, b.Paths) && maps.Equal(a.GatewayPaths, b.GatewayPaths) &&
		reflect.DeepEqual(a.Local, b.Local) &&
		reflect.DeepEqual(a.Tunnels, b.Tunnels) &&
		reflect.DeepEqual(a.Live, b.Live) &&
		a.PeersSynced == b.PeersSynced && reflect.DeepEqual(a.RestoredLive, b.RestoredLive) &&
		reflect.DeepEqual(a.Facts, b.Facts)
}
