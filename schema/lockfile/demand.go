package lockfile

import (
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
)

// Request is a claim of the topology with the required number of addresses per family.
type Request struct {
	Claim
	Count int
	Path  string // topology path
}

// TunnelPool and VIPPool are the names of the pools that belong to no cluster. The name of a
// cluster contains no slash.
const (
	TunnelPool = "/tunnel"
	VIPPool    = "/services"
)

// Pool returns the pool of the claim's addresses: the name of a cluster, TunnelPool or VIPPool.
func (s Claim) Pool() string {
	switch s.Kind {
	case ClaimGateway:
		return TunnelPool
	case ClaimClusterSetIP:
		return VIPPool
	}
	return s.Cluster
}

// Requests returns the requests of the topology in the order of allocation.
func Requests(top *schema.ClusterSet) []Request {
	var out []Request
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		path := fieldpath.Key("clusters", c.Name)
		out = append(out, Request{Claim{Kind: ClaimEgress, Cluster: c.Name}, top.Spec.Globalnet.EgressIPs, path})
		for _, g := range c.AllGateways() {
			out = append(out, Request{Claim{Kind: ClaimGateway, Cluster: c.Name, Name: g.Name}, 1, fieldpath.Key(path+".gateways", g.Name)})
		}
		for _, r := range c.Egress {
			out = append(out, Request{Claim{Kind: ClaimRule, Cluster: c.Name, Name: r.Name}, r.IPs, fieldpath.Key(path+".egress", r.Name)})
		}
	}
	for i := range top.Spec.Exports {
		e := &top.Spec.Exports[i]
		path, id := fieldpath.Key("exports", e.ID()), e.ID()
		if !e.Headless() {
			out = append(out, Request{Claim{Kind: ClaimClusterSetIP, Export: id}, 1, path})
		}
		for _, c := range e.Clusters {
			if !e.Headless() {
				out = append(out, Request{Claim{Kind: ClaimExport, Export: id, Cluster: c}, 1, fieldpath.Key(path+".clusters", c)})
				continue
			}
			for _, h := range e.Hostnames.Hosts() {
				out = append(out, Request{Claim{Kind: ClaimHost, Export: id, Cluster: c, Name: h}, 1, path + ".hostnames"})
			}
		}
	}
	slices.SortFunc(out, func(a, b Request) int { return a.compare(b.Claim) })
	return out
}
