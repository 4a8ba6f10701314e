package round

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/direct"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// maxSpecTries limits how often a round observes again because PeerSpec changed.
const maxSpecTries = 4

// StepUntilStable makes the decision of one round. It observes, steps, and passes each new PeerSpec
// to setSpec. It repeats this until the PeerSpec no longer changes, at most maxSpecTries times. After
// that it uses the last observation.
func StepUntilStable(previous State, observe func() Observed, setSpec func(*PeerSpec), now time.Time) (State, Effects) {
	for tries := 1; ; tries++ {
		in := observe()
		next, do := Step(previous, in, now)
		if do.PeerSpec == nil {
			return next, do
		}
		setSpec(do.PeerSpec)
		if tries == maxSpecTries {
			in.Peers.Spec = do.PeerSpec
			return Step(previous, in, now)
		}
	}
}

// Step makes the decision of one round. If Effects.PeerSpec is set, next is previous. The caller must
// then apply this PeerSpec, observe the peers again, and repeat the step.
func Step(previous State, in Observed, now time.Time) (next State, do Effects) {
	next = previous
	if next.cache == nil {
		next.cache = &cache{}
	}
	f := next.retainGateways(in, now, &do)
	in.Local.Discovered = next.discoverEndpoints(in, f, now, &do)
	pairs, excluded := directPairs(f, in.Facts, in.Local, in.Cluster, in.Node)
	spec := next.peerSpec(in, f, pairs)
	if !spec.equal(in.Peers.Spec) {
		return previous, Effects{PeerSpec: &spec}
	}
	selected := next.selectPaths(in, f, now, &do)
	next.planPeers(in, f, spec, selected, &do)
	restored, synced := next.restoreClusterState(in, f, now, &do)
	next.project(projection.Input{
		Fabric: f, Digest: in.Digest, Keys: in.Keys, Cluster: in.Cluster, Node: in.Node, Facts: in.Facts, Local: in.hostState(),
		FormerShape: next.Transition.Before, Paths: selected.remote, GatewayPaths: selected.own,
		ClusterStates: in.Peers.ClusterStates, RestoredClusterStates: restored, PeersSynced: synced,
		Tunnels: tunnelParams(in, spec.Probing, in.Peers.Tunnels), Direct: directNodes(in.Peers.Direct, excluded), Memo: &next.cache.slots,
	}, &do)
	return next, do
}

// retainGateways returns the fabric with the gateways that left it and are still in use. It also
// updates the transition to a new shape.
func (s *State) retainGateways(in Observed, now time.Time, do *Effects) *fabric.Fabric {
	s.Transition = s.Transition.update(in.Fabric, in.Peers.ClusterStates, now)
	inUse := func(f *fabric.Fabric, g health.GatewayID) bool {
		return len(s.Selector.users(f, in.Peers.Links, g)) > 0
	}
	s.Retiring = s.Retiring.update(in.Fabric, inUse, now)
	do.Retiring = s.IsRetiring(in.Cluster, in.Node)
	if len(s.Retiring.IDs) > 0 || s.Transition.Before != nil {
		do.requeueAfter(recheck)
	}
	return s.Retiring.merged
}

// discoverEndpoints returns the endpoints that other clusters announce for their gateways, and
// announces the endpoints of this cluster.
func (s *State) discoverEndpoints(in Observed, f *fabric.Fabric, now time.Time, do *Effects) map[string][]model.DiscoveredEndpoint {
	var expires time.Duration
	s.Endpoints, expires = s.Endpoints.Update(f, in.Cluster, in.Facts.Nodes, in.Peers.ClusterStates, now)
	do.requeueAfter(expires)
	do.AnnounceEndpoints = endpoint.BuildAdvert(f, in.Cluster, in.Facts, in.Local.Resolved, in.Peers.ClusterStates, in.Peers.ObservedAddrs)
	return s.Endpoints.Endpoints()
}

// peerSpec returns the links to probe, and the tunnel and the endpoint candidates of each pair.
func (s *State) peerSpec(in Observed, f *fabric.Fabric, nodes direct.Spec) PeerSpec {
	probing, pairs := s.cache.linksOf(in, f, s.Transition.Before)
	return PeerSpec{
		Probing: probing,
		Direct:  nodes,
		Pairs:   pairs,
		Remotes: s.cache.remotesOf(projection.Input{
			Fabric: f, Keys: in.Keys, Cluster: in.Cluster, Node: in.Node, Facts: in.Facts, Local: in.Local, FormerShape: s.Transition.Before,
		}),
	}
}

// selectPaths returns the best path to each other cluster. It marks paths in hold-down as down.
func (s *State) selectPaths(in Observed, f *fabric.Fabric, now time.Time, do *Effects) paths {
	v := s.view(in.Cluster, in.Node, f, in.Peers.Links.WithRetiring(s.Retiring.IDs))
	v.narrow = in.Peers.PathMTUs
	choice, selected := s.Selector.next(v, in.Peers.ClusterStates, now)
	var held []string
	var expires time.Duration
	s.HoldDown, held, expires = s.HoldDown.update(choice.StartedAt, s.Selector.Paths, selected.remote, now)
	for _, remote := range held {
		path := selected.remote[remote]
		path.Down = true
		selected.remote[remote] = path
	}
	do.requeueAfter(expires)
	s.Selector, s.Transition.Former = choice, selected.formerShape
	do.Moves, do.Links, do.AnnounceTransit = choice.newMoves, selected.links, selected.advertise
	if !selected.formerShape {
		do.Shape = projection.ShapeDigest(f.Shape)
	}
	selected.limit(v.gateway, v.narrow)
	return selected
}

// planPeers decides which feeds this node subscribes to and serves, and on which links it probes
// the path MTU.
func (s *State) planPeers(in Observed, f *fabric.Fabric, spec PeerSpec, selected paths, do *Effects) {
	do.Feeds, do.FeedsErr = s.cache.feedsOf(in, f, selected.remote)
	do.PathMTU = pathMTUSpec(spec.OwnGateway(in.Cluster), spec.Probing, s.last.Node, selected.links)
}

// restoreClusterState returns the saved states of clusters that have been silent since the start.
// synced reports whether every cluster sent a state or counts as lost.
func (s *State) restoreClusterState(in Observed, f *fabric.Fabric, now time.Time, do *Effects) (restored map[string]model.ClusterState, synced bool) {
	do.SaveClusterStates = !reflect.DeepEqual(s.Restored.received, in.Peers.ClusterStates)
	s.Restored, synced = s.Restored.update(len(f.Clusters)-1, in.Peers.ClusterStates, in.StaleAfter, now)
	// Saved values expire after these times, even without an event.
	do.requeueAfter(s.Selector.StartedAt.Add(SettleTime).Sub(now))
	do.requeueAfter(s.Restored.StartedAt.Add(in.StaleAfter).Sub(now))
	return s.Restored.Saved, synced
}

// project sets the desired state of an input in do. If the input did not change, it is the last
// desired state. Otherwise project also starts the announcement of changed exports.
func (s *State) project(input projection.Input, do *Effects) {
	input.Fabric, input.MCSDecision = s.cache.exports.update(input)
	if s.last.Node == nil || s.rerouted || !SameInput(s.last.Input, input) {
		state, problems, announced := projection.DesiredAndAnnounced(input)
		s.last = Projection{Input: input, Node: &DesiredNode{State: state, Decommission: input.Fabric.Decommission}, Problems: problems}
		s.generation++
		s.rerouted, s.routed = false, input
		s.Announcement, do.AnnounceExports = s.Announcement.startRound(announced)
		do.Changed = true
	}
	do.Node, do.Digest = s.last.Node, input.Digest+"-"+strconv.Itoa(s.generation)
}

// hostState returns the state of this host with the endpoints in use of remote gateways.
func (in Observed) hostState() model.HostState {
	out := in.Local
	out.RemoteEndpoints = in.Peers.RemoteEndpoints
	return out
}

// requeueAfter requests another round after at most the given time; 0 = no request.
func (e *Effects) requeueAfter(after time.Duration) {
	if after > 0 {
		e.Requeue = min(cmp.Or(e.Requeue, after), after)
	}
}

// Reroute only selects the paths again, because their routes must not wait for a round. If ok is
// true, State.Routes returns the new routes. ok is false if no path and no link to a neighbouring
// cluster moved since the last projection.
func Reroute(previous State, in Observed, now time.Time) (next State, do Effects, ok bool) {
	next = previous
	if next.last.Node == nil {
		return previous, do, false
	}
	selected := next.selectPaths(in, next.last.Input.Fabric, now, &do)
	nodes := next.cache.direct.update(next.last.Input.Direct, in.Peers.Direct)
	if !next.rerouted && maps.Equal(selected.remote, next.last.Input.Paths) && maps.Equal(selected.own, next.last.Input.GatewayPaths) &&
		sameSlice(nodes, next.last.Input.Direct) && next.Selector.sameLinks(previous.Selector) {
		return next, do, false
	}
	next.rerouted, next.routed = true, next.last.Input
	next.routed.Paths, next.routed.GatewayPaths, next.routed.Direct = selected.remote, selected.own, nodes
	return next, do, true
}

// Routes returns only the routes of the selected paths. Until the last projection is applied, it
// includes applied routes that the projection drops. The full round must first remove the objects
// that deliver packets to these routes. Otherwise the packets would leave unencrypted.
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

// Applied records that the desired state of the last round is in the kernel. exports is the state to
// announce to other clusters; nil = unchanged.
func Applied(previous State) (next State, exports *model.ClusterState) {
	next = previous
	next.applied = previous.last.Node
	next.Announcement, exports = next.Announcement.finishRound()
	return next, exports
}

// SameInput reports whether two inputs yield the same desired state. It is fast, because most
// inputs share their values: for these, reflect.DeepEqual compares only pointers.
func SameInput(a, b projection.Input) bool {
	return a.Fabric == b.Fabric && a.Keys == b.Keys &&
		a.FormerShape == b.FormerShape && maps.Equal(a.Paths, b.Paths) && maps.Equal(a.GatewayPaths, b.GatewayPaths) &&
		reflect.DeepEqual(a.Local, b.Local) &&
		reflect.DeepEqual(a.Tunnels, b.Tunnels) && slices.Equal(a.Direct, b.Direct) &&
		reflect.DeepEqual(a.ClusterStates, b.ClusterStates) &&
		a.PeersSynced == b.PeersSynced && reflect.DeepEqual(a.RestoredClusterStates, b.RestoredClusterStates) &&
		reflect.DeepEqual(a.Facts, b.Facts)
}
