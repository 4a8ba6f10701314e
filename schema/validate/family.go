package validate

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/overlap"
)

// checkFamilies reports clusters without a common address family, between which no packets
// can flow.
func (c *checker) checkFamilies() {
	var prefixes, endpoints familySplit
	for i := range c.set.Spec.Clusters {
		cluster := &c.set.Spec.Clusters[i]
		prefixes.add(i, familiesOf(cluster.CIDRs()))
		endpoints.add(i, endpointFamilies(cluster))
	}
	c.reportSplit(c.Warn, prefixes, "podCIDRs", "no-common-family", "has only IPv6 prefixes, and %s only IPv4: they cannot reach each other",
		"a cluster with both families reaches both")
	c.checkEndpointFamilies(endpoints)
	c.checkAllowFamilies()
}

// familySplit holds the clusters with a single family, by index.
type familySplit struct{ four, six []int }

func (s *familySplit) add(cluster int, h overlap.Families) {
	switch {
	case h.IPv4 && !h.IPv6:
		s.four = append(s.four, cluster)
	case h.IPv6 && !h.IPv4:
		s.six = append(s.six, cluster)
	}
}

func familiesOf(prefixes []netip.Prefix) (h overlap.Families) {
	for _, p := range prefixes {
		if p.IsValid() {
			h = h.With(p.Addr().Is6())
		}
	}
	return h
}

// endpointFamilies returns the families of a cluster's endpoints. It returns none if an
// endpoint is a name or a source, which may have addresses of both.
func endpointFamilies(cluster *schema.Cluster) (h overlap.Families) {
	for i := range cluster.Gateways {
		for _, text := range cluster.Gateways[i].Endpoints {
			e, err := fabric.ParseEndpoint(text)
			if err != nil || e.Name != "" {
				return overlap.Families{}
			}
			h = h.With(e.Addr.Is6())
		}
	}
	return h
}

// reportSplit reports each IPv6-only cluster once.
func (c *checker) reportSplit(report func(code, path, summary, hint string, others ...string), s familySplit, field, code, summary, hint string) {
	if len(s.four) == 0 {
		return
	}
	var names, paths []string
	for _, i := range s.four {
		names = append(names, c.set.Spec.Clusters[i].Name)
		paths = append(paths, c.clusterPaths[i]+"."+field)
	}
	others := humanize.FirstN(names, overlap.MaxOthers)
	for _, i := range s.six {
		report(code, c.clusterPaths[i]+"."+field, fmt.Sprintf(summary, others), hint,
			paths[:min(len(paths), overlap.MaxOthers)]...)
	}
}

// checkEndpointFamilies finds linked clusters that are reached over different families.
// VXLAN must send both ways; the other drivers may dial out from any address.
func (c *checker) checkEndpointFamilies(s familySplit) {
	for _, i := range s.six {
		name := c.set.Spec.Clusters[i].Name
		linked, plain := familySplit{six: []int{i}}, familySplit{six: []int{i}}
		for _, j := range s.four {
			switch other := c.set.Spec.Clusters[j].Name; {
			case !c.links.Graph.Linked(name, other):
			case c.links.Of(name, other).Driver == fabric.DriverVXLAN:
				plain.four = append(plain.four, j)
			default:
				linked.four = append(linked.four, j)
			}
		}
		c.reportSplit(c.Warn, linked, "gateways", "endpoint-family", "is reached over IPv6 only, and %s over IPv4 only",
			"they connect if the gateways of one of the two also have an address of the other family, or through a third cluster")
		c.reportSplit(c.Fail, plain, "gateways", "endpoint-family", "is reached over IPv6 only, and %s over IPv4 only: vxlan cannot link them",
			"give the gateways of one of the two an endpoint of the other family")
	}
}

// checkAllowFamilies finds allowed clusters of an export without a common family with any
// exporting cluster.
func (c *checker) checkAllowFamilies() {
	familiesByName := func(name string) overlap.Families {
		i, known := c.clusters[name]
		if !known {
			return overlap.Families{IPv4: true, IPv6: true}
		}
		if h := familiesOf(c.set.Spec.Clusters[i].CIDRs()); h != (overlap.Families{}) {
			return h
		}
		return overlap.Families{IPv4: true, IPv6: true}
	}
	for i, path := range c.exportPaths {
		e := &c.set.Spec.Exports[i]
		if e.Allow == nil {
			continue
		}
		for j, caller := range e.Allow.Clusters {
			h := familiesByName(caller)
			common := slices.ContainsFunc(e.Clusters, func(name string) bool {
				o := familiesByName(name)
				return name == caller || h.IPv4 && o.IPv4 || h.IPv6 && o.IPv6
			})
			if !common && len(e.Clusters) > 0 {
				c.Warn("no-common-family", fieldpath.Index(path+".allow.clusters", j),
					fmt.Sprintf("%s has no address family in common with %s, where the export is", caller, humanize.FirstN(e.Clusters, overlap.MaxOthers)),
					"its names have no addresses there; export it from a cluster with both families")
			}
		}
	}
}
