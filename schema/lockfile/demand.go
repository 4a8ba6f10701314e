package lockfile

import (
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
)

// Request is a slot of the topology and how many addresses a family it needs.
type Request struct {
	Claim
	Count int
	Path  string // topology path
}

// Names of the areas that belong to no cluster; no cluster has such a name.
const (
	TunnelArea = "/tunnel"
	VIPArea    = "/services"
)

// Pool names where the slot has its addresses from: a cluster, or one of the pools.
func (s Claim) Pool() string {
	switch s.Kind {
	case SlotGateway:
		return TunnelArea
	case ClaimClusterSetIP:
		return VIPArea
	}
	return s.Cluster
}

// Requests lists what the topology needs, in the order of allocation.
func Requests(top *schema.ClusterSet) []Request {
	var out []Request
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		path := fieldpath.Key("clusters", c.Name)
		out = append(out, Request{Claim{Kind: SlotEgress, Cluster: c.Name}, top.Spec.Globalnet.EgressIPs, path})
		for _, g := range c.AllGateways() {
			out = append(out, Request{Claim{Kind: SlotGateway, Cluster: c.Name, Name: g.Name}, 1, fieldpath.Key(path+".gateways", g.Name)})
		}
		for _, r := range c.Egress {
			out = append(out, Request{Claim{Kind: SlotRule, Cluster: c.Name, Name: r.Name}, r.IPs, fieldpath.Key(path+".egress", r.Name)})
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
				out = append(out, Request{Claim{Kind: SlotExport, Export: id, Cluster: c}, 1, fieldpath.Key(path+".clusters", c)})
				continue
			}
			for _, h := range e.Hostnames.Hosts() {
				out = append(out, Request{Claim{Kind: SlotHost, Export: id, Cluster: c, Name: h}, 1, path + ".hostnames"})
			}
		}
	}
	slices.SortFunc(out, func(a, b Request) int { return a.compare(b.Claim) })
	return out
}
