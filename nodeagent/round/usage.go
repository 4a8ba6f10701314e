package round

import (
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// needed returns the clusters that this cluster reaches only over this gateway. states has the states
// of other clusters.
func (s *pathSelector) needed(v nodeView, states map[string]model.ClusterState) []string {
	ranks := transitRanks{selector: s, snapshot: v, states: states}
	routes := health.ClusterPaths(projection.NewGraph(v.fabric, v.before), s.Cluster, health.LinkRanks{Direct: v.rankWithoutThis, Transit: func(a, b string) health.Rank {
		switch s.Cluster {
		case a:
			return v.rankWithoutThis(b)
		case b:
			return v.rankWithoutThis(a)
		}
		return ranks.transit(a, b)
	}})
	var out []string
	for i := range v.fabric.Clusters {
		if name := v.fabric.Clusters[i].Name; name != s.Cluster && len(routes[name].Hops) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// rankWithoutThis returns the rank of the best link to a neighbouring cluster over another gateway of
// this cluster.
func (v nodeView) rankWithoutThis(neighbour string) health.Rank {
	rank := health.Down
	for _, near := range v.fabric.Cluster(v.cluster).Gateways {
		for _, far := range v.fabric.Cluster(neighbour).Gateways {
			if near.Name != v.gateway {
				rank = max(rank, v.links.Rank(near.Name, health.GatewayID{Cluster: neighbour, Gateway: far.Name}))
			}
		}
	}
	return rank
}

// User is a cluster that uses a gateway. Who is the link, or the remote gateway that reported it.
type User struct{ Cluster, Who string }

func (u User) String() string { return u.Cluster + " (" + u.Who + ")" }

// users returns the clusters that use a gateway of this or another cluster. The selection of this
// node and the reports of remote gateways are the evidence.
func (s *pathSelector) users(f *fabric.Fabric, links health.Snapshot, gateway health.GatewayID) []User {
	var out []User
	for i := range f.Clusters {
		remote := &f.Clusters[i]
		if remote.Name != s.Cluster && (gateway.Cluster == s.Cluster || gateway.Cluster == remote.Name) {
			if who := s.usedWith(f, remote, links, gateway); who != "" {
				out = append(out, User{remote.Name, who})
			}
		}
	}
	return out
}

// usedWith returns how traffic between this cluster and remote uses a gateway: User.Who, or empty
// if it does not.
func (s *pathSelector) usedWith(f *fabric.Fabric, remote *fabric.Cluster, links health.Snapshot, gateway health.GatewayID) string {
	path := s.Paths[remote.Name].Path
	own := gateway.Cluster == s.Cluster
	if own && path.Local == gateway.Gateway || !own && path.Via == "" && path.Remote == gateway.Gateway {
		return nodeView{cluster: s.Cluster}.name(remote.Name, path)
	}
	for _, far := range remote.Gateways {
		for _, near := range f.Cluster(s.Cluster).Gateways {
			concerns := own && near.Name == gateway.Gateway || !own && far.Name == gateway.Gateway
			if concerns && links.PeerUses(near.Name, health.GatewayID{Cluster: remote.Name, Gateway: far.Name}) {
				return "by " + remote.Name + "/" + far.Name
			}
		}
	}
	return ""
}
