package schema

import "slices"

// demand is a slot of the topology and how many addresses a family it needs.
type demand struct {
	slot
	count int
	path  string // topology path
}

func (s slot) area() string {
	switch s.kind {
	case slotGateway:
		return tunnelArea
	case slotVIP:
		return vipArea
	}
	return s.cluster
}

// demandsOf lists what the topology needs, in the order of allocation.
func demandsOf(top *ClusterSet) []demand {
	var out []demand
	for i := range top.Spec.Clusters {
		c := &top.Spec.Clusters[i]
		path := at("clusters", c.Name)
		out = append(out, demand{slot{kind: slotEgress, cluster: c.Name}, top.Spec.Globalnet.EgressIPs, path})
		for _, g := range c.AllGateways() {
			out = append(out, demand{slot{kind: slotGateway, cluster: c.Name, name: g.Name}, 1, at(path+".gateways", g.Name)})
		}
		for _, r := range c.Egress {
			out = append(out, demand{slot{kind: slotRule, cluster: c.Name, name: r.Name}, r.IPs, at(path+".egress", r.Name)})
		}
	}
	for i := range top.Spec.Exports {
		out = append(out, exportDemands(&top.Spec.Exports[i])...)
	}
	slices.SortFunc(out, func(a, b demand) int { return a.compare(b.slot) })
	return out
}

func exportDemands(e *Export) []demand {
	path, id := at("exports", e.ID()), e.ID()
	var out []demand
	if !e.Headless() {
		out = append(out, demand{slot{kind: slotVIP, export: id}, 1, path})
	}
	for _, c := range e.Clusters {
		if !e.Headless() {
			out = append(out, demand{slot{kind: slotExport, export: id, cluster: c}, 1, at(path+".clusters", c)})
			continue
		}
		for _, h := range e.Hostnames.Hosts() {
			out = append(out, demand{slot{kind: slotHost, export: id, cluster: c, name: h}, 1, path + ".hostnames"})
		}
	}
	return out
}
