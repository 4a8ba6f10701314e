// Package round decides what a node does next. One pure function, Step, takes the state
// that the last round left, what is observed, and the time. It returns the next state
// and what to do: the desired state of the node, and what other agents learn. It has no
// clock, randomness or I/O, and logs nothing. The running agent calls it in each round,
// hawser-agent plan calls it with the state and the observations of that agent, and the
// tests replay recorded rounds.
package round

import (
	"maps"
	"reflect"
	"slices"
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
	// PeerSpec is set if the parts that talk to other agents use an older one. They get
	// this one, and the same step runs again with what they observe. All other fields are
	// then empty.
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

// view returns what this node sees of links.
func (s *State) view(cluster, node string, f *fabric.Fabric, links health.Snapshot) nodeView {
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
	return s.Choice.state(s.view(in.Cluster, in.Node, in.Fabric, links))
}

// Users names the clusters whose traffic this node's gateway carries, each with how that
// is known, and needed those of them that have no other way.
func (s State) Users(in projection.Input, links health.Snapshot) (users []User, needed []string) {
	v := s.view(in.Cluster, in.Node, in.Fabric, links)
	return s.Choice.users(in.Fabric, links, health.GatewayID{Cluster: in.Cluster, Gateway: v.gateway}), s.Choice.needed(v, in.Live)
}
