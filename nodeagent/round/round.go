// Package round makes the decision of each round. In a round the agent observes its inputs and the
// node, calls Step, and applies the effects, of which package converge writes the desired state. The
// pure function Step has three inputs: the state of the last round, the observations and the time. It
// returns the next state and the effects: the desired state of the node, and the announcements to
// other agents. It has no clock, randomness or I/O, and logs nothing. So hawser-agent plan can
// compute the round of a running agent, and tests can replay recorded rounds.
package round

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/direct"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Observed has the observations that Step reads.
type Observed struct {
	Cluster string // of this node
	Node    string
	// StaleAfter is the time for which a cluster's state is valid after its last message.
	StaleAfter time.Duration
	Fabric     *fabric.Fabric
	// Digest is the digest of Fabric.
	Digest string
	Keys   *fabric.Keys `json:"-"`
	Facts  model.Facts
	Local  model.HostState // except RemoteEndpoints
	Peers  PeerStatus
}

// PeerStatus is the state of all protocols with other agents.
type PeerStatus struct {
	Spec          *PeerSpec // in use when the status was read; nil before the first spec
	Links         health.Snapshot
	ClusterStates map[string]model.ClusterState // by remote cluster
	PathMTUs      map[string]int                // by remote gateway, in bytes; only if smaller than the tunnel's MTU
	// Tunnels has the tunnels of each link in migration, by remote gateway.
	Tunnels map[string][]migration.TunnelID
	// RemoteEndpoints has the endpoint in use of each remote gateway that has several.
	RemoteEndpoints map[string]model.RemoteEndpoint
	// Direct has the pairs of nodes that may exchange packets without VXLAN.
	Direct []direct.State `json:",omitempty"`
	// ObservedAddrs has the observed addresses of remote gateways whose links are up.
	ObservedAddrs endpoint.ObservedAddrs
}

// PeerSpec has the targets of all protocols with other agents.
type PeerSpec struct {
	Probing ProbeSpec
	Pairs   []migration.PairConfig // links with the tunnel that the fabric requires
	Remotes []Remote
	Direct  direct.Spec
}

// OwnGateway returns this node's gateway as cluster/gateway; empty if the node is not a gateway.
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
	return samePairs(a.Pairs, o.Pairs) && slices.EqualFunc(a.Remotes, o.Remotes, Remote.equal) && reflect.DeepEqual(a.Probing, o.Probing) &&
		a.Direct.Equal(o.Direct)
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

// DesiredNode is the desired state of a node.
type DesiredNode struct {
	desired.State
	// Decommission reports whether the node must remove all objects of Hawser.
	Decommission bool
}

// Projection is a desired state with its input.
type Projection struct {
	Input    projection.Input
	Node     *DesiredNode
	Problems []projection.Problem
}

// Outcome is the result of an applied round. Node is nil before the first round.
type Outcome struct {
	Report converge.Report
	Projection
	Retiring []health.GatewayID
}

// State is the state between two rounds. A State is immutable, but a State and its successors share
// caches, so all their steps must run in one goroutine. Its JSON is the input of a dry run and has
// no secret.
type State struct {
	Selector     *pathSelector         `json:"selector"`
	Transition   transition            `json:"transition"`
	Retiring     retiringGateways      `json:"retiring"`
	Restored     restoredClusterStates `json:"restored"`
	Announcement exportAnnouncement    `json:"announcement"`
	Endpoints    endpoint.Registry     `json:"endpoints,omitzero"`
	HoldDown     holdDown              `json:"holdDown,omitempty"`

	last       Projection
	generation int
	rerouted   bool             // the routes are newer than last
	routed     projection.Input // input of the current routes
	applied    *DesiredNode     // of the last complete round; nil before the first
	cache      *cache
}

// cache has inputs and results of the last step that the next step may reuse.
type cache struct {
	slots    projection.Memo
	exports  effectiveFabric
	input    remotesInput
	remotes  []Remote
	links    probingInput // yields probing and pairs
	probing  ProbeSpec
	pairs    []migration.PairConfig
	feeds    feedInput // yields feedSpec
	feedSpec FeedSpec
	direct   directCache
}

// SavedClusterStates has the saved states of other clusters by name.
type SavedClusterStates map[string]model.ClusterState

// Saved is the state from the previous agent process on this node.
type Saved struct {
	Paths         map[string]SavedPath
	Shape         SavedShape
	ClusterStates SavedClusterStates
	Endpoints     map[string][]model.DiscoveredEndpoint
	// TunnelsInUse reports whether the previous agent left tunnels in use.
	TunnelsInUse bool
}

// NewState returns the state of an agent that starts now.
func NewState(cluster string, saved Saved, now time.Time) State {
	return State{
		Selector:     restorePathSelector(cluster, saved.Paths, now),
		Transition:   restoreTransition(saved.Shape, now),
		Restored:     restoredClusterStates{StartedAt: now, Saved: saved.ClusterStates},
		Announcement: exportAnnouncement{Active: saved.TunnelsInUse},
		Endpoints:    endpoint.Restore(saved.Endpoints),
	}
}

// Effects are the actions that a step requires.
type Effects struct {
	// PeerSpec is set if the protocols use an older spec. The caller must apply it, observe,
	// and repeat the step. All other fields are then empty.
	PeerSpec *PeerSpec

	Moves           []status.Move         // path changes of this step
	Links           map[string]model.Path // the active link to each neighbouring cluster, for other agents
	Shape           string                // digest of the shape that this cluster uses, for other clusters
	AnnounceTransit *model.TransitAdvert  // this cluster's links for transit
	Feeds           FeedSpec
	FeedsErr        error // why Feeds is incomplete; the running feeds then continue
	PathMTU         PathMTUSpec
	// AnnounceExports has the exports of this cluster for other clusters; nil = unchanged.
	AnnounceExports *model.ClusterState
	// AnnounceEndpoints has the discovered endpoints of gateways for other clusters.
	AnnounceEndpoints *model.EndpointAdvert
	Retiring          bool          // the gateway of this node is retiring
	SaveClusterStates bool          // the states of other clusters must be saved
	Requeue           time.Duration // the next round is due after this time; 0 = none
	// Node is the desired state and Digest identifies it. If Changed is false, Node is the
	// same pointer as in the last step.
	Node    *DesiredNode
	Digest  string
	Changed bool
}

// WithRunning returns p with the status of the running agent where it exists, for a dry run. Links,
// tunnels and endpoints of new targets remain those in p.
func (p PeerStatus) WithRunning(running PeerStatus) PeerStatus {
	p.Links = p.Links.Merge(running.Links)
	p.ClusterStates, p.PathMTUs, p.ObservedAddrs, p.Direct = running.ClusterStates, running.PathMTUs, running.ObservedAddrs, running.Direct
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

// view returns the state of the links from this node.
func (s *State) view(cluster, node string, f *fabric.Fabric, links health.Snapshot) nodeView {
	return nodeView{fabric: f, cluster: cluster, gateway: gatewayOf(f, cluster, node), links: links, before: s.Transition.Before}
}

// Initialized reports whether the state is not zero. The state of another agent version may lack
// fields.
func (s State) Initialized() bool { return s.Selector != nil }

// Last returns the last projection; its Node is nil before the first.
func (s State) Last() Projection { return s.last }

// RoutedInput returns the input of the current routes; its Fabric is nil before the first
// projection.
func (s State) RoutedInput() projection.Input { return s.routed }

// RetiringGateways returns the gateways that left the fabric and are still in use.
func (s State) RetiringGateways() []health.GatewayID { return s.Retiring.IDs }

// IsRetiring reports whether the gateway of a node is retiring.
func (s State) IsRetiring(cluster, node string) bool {
	return slices.ContainsFunc(s.Retiring.Gateways, func(m members) bool {
		return m.Cluster == cluster && slices.ContainsFunc(m.Gateways, func(g fabric.Gateway) bool {
			return g.Node == node && slices.Contains(s.Retiring.IDs, health.GatewayID{Cluster: cluster, Gateway: g.Name})
		})
	})
}

// SavedPaths, SavedShape and SavedLive return the parts of Saved for the agent after a restart.
func (s State) SavedPaths() map[string]SavedPath       { return s.Selector.saved() }
func (s State) SavedShape() SavedShape                 { return s.Transition.saved() }
func (s State) SavedClusterStates() SavedClusterStates { return s.Restored.saved() }

// SavedEndpoints returns the discovered endpoints of other clusters for Saved.
func (s State) SavedEndpoints() map[string][]model.DiscoveredEndpoint { return s.Endpoints.Saved() }

// Paths returns the active paths of the current routes, and the last moves. links is the current
// snapshot of the prober.
func (s State) Paths(in projection.Input, links health.Snapshot) ([]status.Path, []status.Move) {
	return s.Selector.state(s.view(in.Cluster, in.Node, in.Fabric, links))
}

// Users returns the clusters that use this node's gateway, and the clusters that have no path over
// another gateway.
func (s State) Users(in projection.Input, links health.Snapshot) (users []User, needed []string) {
	v := s.view(in.Cluster, in.Node, in.Fabric, links)
	return s.Selector.users(in.Fabric, links, health.GatewayID{Cluster: in.Cluster, Gateway: v.gateway}), s.Selector.needed(v, in.ClusterStates)
}
