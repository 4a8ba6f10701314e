package lockfile

import (
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/paths"
)

// Demand is a slot of the topology and how many addresses a family it needs.
type Demand struct {
	Slot
	Count int
	Path  string // topology path
}

// Names of the areas that belong to no cluster; no cluster has such a name.
const (
	TunnelArea = "/tunnel"
	VIPArea    = "/services"
)

// Area names where the slot has its addresses from: a cluster, or one of the pools.
func (s Slot) Area() string {
	switch s.Kind {
	case SlotGateway:
		return TunnelArea
	case SlotVIP:
		return VIPArea
	}
	return s.Cluster
}

// Demands lists what the topology needs, in the order of allocation.
func Demands(top *schema.ClusterSet) []Demand {
	var out []Demand
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		path := paths.At("clusters", c.Name)
		out = append(out, Demand{Slot{Kind: SlotEgress, Cluster: c.Name}, top.Spec.Globalnet.EgressIPs, path})
		for _, g := range c.AllGateways() {
			out = append(out, Demand{Slot{Kind: SlotGateway, Cluster: c.Name, Name: g.Name}, 1, paths.At(path+".gateways", g.Name)})
		}
		for _, r := range c.Egress {
			out = append(out, Demand{Slot{Kind: SlotRule, Cluster: c.Name, Name: r.Name}, r.IPs, paths.At(path+".egress", r.Name)})
		}
	}
	for i := range top.Spec.Exports {
		e := &top.Spec.Exports[i]
		path, id := paths.At("exports", e.ID()), e.ID()
		if !e.Headless() {
			out = append(out, Demand{Slot{Kind: SlotVIP, Export: id}, 1, path})
		}
		for _, c := range e.Clusters {
			if !e.Headless() {
				out = append(out, Demand{Slot{Kind: SlotExport, Export: id, Cluster: c}, 1, paths.At(path+".clusters", c)})
				continue
			}
			for _, h := range e.Hostnames.Hosts() {
				out = append(out, Demand{Slot{Kind: SlotHost, Export: id, Cluster: c, Name: h}, 1, path + ".hostnames"})
			}
		}
	}
	slices.SortFunc(out, func(a, b Demand) int { return a.compare(b.Slot) })
	return out
}
