// Package projection computes the desired state of a node: kernel objects and DNS data. Its input
// is the fabric, keys, facts, link health and the state of other clusters. It is pure: no clock, no
// randomness, no environment, no I/O, and no dependence on map order.
package projection

import (
	"slices"

	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Input has all inputs of a node's state.
type Input struct {
	Fabric  *fabric.Fabric
	Digest  string // of the fabric
	Keys    *fabric.Keys
	Cluster string // this node's cluster
	Node    string // this node's name
	Facts   model.Facts
	Local   model.HostState
	Paths   map[string]model.Path // by remote cluster
	// GatewayPaths has the best own link of this gateway to each remote cluster. Traffic that
	// other nodes hand over uses it, regardless of Paths. It is empty on other nodes.
	GatewayPaths map[string]model.Path
	// Tunnels are the tunnels to a remote gateway, by cluster/gateway, if they differ from the
	// single tunnel in the fabric. The first one sends; all of them receive.
	Tunnels map[string][]model.TunnelParams
	// Direct are the nodes to and from which packets may pass without VXLAN, sorted by node and
	// address.
	Direct []model.DirectNode
	// FormerShape is the previous shape, while a cluster may still use it; nil if none.
	FormerShape   *fabric.Shape
	ClusterStates map[string]model.ClusterState // by remote cluster; if missing, the static data of the fabric counts
	// RestoredClusterStates has the states saved by the previous agent, for clusters whose state
	// has not arrived since. Their exports stay, like the exports in the fabric.
	RestoredClusterStates map[string]model.ClusterState
	// PeersSynced reports whether a cluster that is missing in ClusterStates is lost. If false, its
	// state may not have arrived yet.
	PeersSynced bool
	// MCSDecision is the result of EffectiveFabric, if already computed; nil if absent. It does
	// not affect the result.
	MCSDecision *mcs.Decision `json:"-"`
	// Memo speeds up later calls with similar input; nil if absent. It does not affect the
	// result.
	Memo *Memo `json:"-"`
}

// AcceptedByNodes reports whether the other nodes of the cluster accept VXLAN from this node: the
// facts contain this node, and it is not Unprotected.
func (in Input) AcceptedByNodes() bool {
	i := slices.IndexFunc(in.Facts.Nodes, func(n model.Node) bool { return n.Name == in.Node })
	return i >= 0 && !in.Facts.Nodes[i].Unprotected
}

// TunnelOf returns the tunnel that a link configures for two gateways, with the epoch of
// driver.Epoch.
func TunnelOf(l fabric.LinkSettings, epochs []int, keys *fabric.Keys, own, remote *fabric.Gateway) model.TunnelParams {
	return model.TunnelParams{
		Driver: l.Driver, LocalPort: l.BasePort(own, 0), RemotePort: l.BasePort(remote, 0), Epoch: driver.Epoch(l.Driver, epochs, keys, own, remote),
	}
}
