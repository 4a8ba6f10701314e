package health

import (
	"crypto/sha256"
	"encoding/binary"

	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/schema/fabric"
)

// Side is one end of a pair of clusters.
type Side struct {
	Cluster  string
	Gateways []string
}

// Choose picks the link that carries the traffic of two clusters: the highest
// rendezvous hash of all combinations of a local and a remote gateway that are
// alive, or of all combinations when none is. The hash does not depend on which
// end asks or on the order of the gateways, so both ends choose the same link,
// and a gateway that comes or goes moves only the pairs that it wins or held.
// The result is false when a side has no gateway. It is pure.
func Choose(local, remote Side, alive func(project.Path) bool) (project.Path, bool) {
	var best, bestAlive project.Path
	var top, topAlive uint64
	var any, anyAlive bool
	for _, l := range local.Gateways {
		for _, r := range remote.Gateways {
			path := project.Path{Local: l, Remote: r}
			score := weight(local.Cluster+"/"+l, remote.Cluster+"/"+r)
			if !any || score > top {
				best, top, any = path, score, true
			}
			if (!anyAlive || score > topAlive) && alive(path) {
				bestAlive, topAlive, anyAlive = path, score, true
			}
		}
	}
	if anyAlive {
		return bestAlive, true
	}
	return best, any
}

// weight is the hash of a link whose ends are named cluster/gateway. Names are
// DNS labels, so the newline cannot occur in one.
func weight(a, b string) uint64 {
	if a > b {
		a, b = b, a
	}
	sum := sha256.Sum256([]byte(a + "\n" + b))
	return binary.BigEndian.Uint64(sum[:8])
}

// Paths chooses the link to every other cluster of the fabric. alive says
// whether a gateway of this cluster reaches a gateway of another one.
func Paths(f *fabric.Fabric, cluster string, alive func(local string, remote Peer) bool) map[string]project.Path {
	own := f.Cluster(cluster)
	if own == nil {
		return nil
	}
	local := side(own)
	paths := make(map[string]project.Path, len(f.Clusters))
	for i := range f.Clusters {
		remote := side(&f.Clusters[i])
		if remote.Cluster == cluster {
			continue
		}
		path, exists := Choose(local, remote, func(p project.Path) bool {
			return alive(p.Local, Peer{Cluster: remote.Cluster, Gateway: p.Remote})
		})
		if exists {
			path.Down = !alive(path.Local, Peer{Cluster: remote.Cluster, Gateway: path.Remote})
			paths[remote.Cluster] = path
		}
	}
	return paths
}

func side(c *fabric.Cluster) Side {
	out := Side{Cluster: c.Name}
	for _, g := range c.Gateways {
		out.Gateways = append(out.Gateways, g.Name)
	}
	return out
}
