// Package projection turns what an agent knows into what its node should have:
// fabric, keys, facts, link health and the other clusters' live state go in,
// desired kernel objects and DNS data come out. It is pure: no clock, no
// randomness, no environment, no I/O, and no dependence on map order.
package projection

import (
	"hawser.dev/hawser/nodeagent/driver"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Input is everything that decides a node's state.
type Input struct {
	Fabric  *fabric.Fabric
	Digest  string // of the fabric
	Keys    *fabric.Keys
	Cluster string // this node's cluster
	Node    string // this node's name
	Facts   model.Facts
	Local   model.HostState
	Paths   map[string]model.Path // by remote cluster
	// GatewayPaths is, on a gateway, its own best link to each remote cluster: what
	// other nodes hand to it leaves there, whatever Paths says meanwhile.
	GatewayPaths map[string]model.Path
	// Tunnels are those of a remote gateway (by cluster/gateway), while they are not
	// just the one that the fabric says: the first is sent over, and what comes over
	// any of them is taken.
	Tunnels map[string][]model.TunnelParams
	// FormerShape is the shape that the clusters leave, as long as one of them may use
	// it still; nil = none.
	FormerShape *fabric.Shape
	Live        map[string]model.ClusterState // by remote cluster; missing = nothing heard, so static data counts
	// RestoredLive is what was heard before the agent was started, of clusters that were not
	// heard since: what they export goes on, as the static data of others does.
	RestoredLive map[string]model.ClusterState
	// PeersSynced says that a cluster which is missing in Live is lost, and not just not
	// heard yet.
	PeersSynced bool
	// MCSDecision is what Effective came to, so that it is not done again; nil = not yet.
	// It changes no result.
	MCSDecision *mcs.Decision `json:"-"`
	// Memo makes later calls with much the same input quick; nil = none. It
	// changes no result.
	Memo *Memo `json:"-"`
}

// TunnelOf gives the tunnel that a link says for two gateways, with the newest epoch
// of those in force of which there are keys.
func TunnelOf(l fabric.LinkSettings, epochs []int, keys *fabric.Keys, own, remote *fabric.Gateway) model.TunnelParams {
	return model.TunnelParams{
		Driver: l.Driver, LocalPort: l.BasePort(own, 0), RemotePort: l.BasePort(remote, 0), Epoch: driver.Epoch(l.Driver, epochs, keys, own, remote),
	}
}
