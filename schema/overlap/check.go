package overlap

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fieldpath"
)

// MaxOthers is the number of related positions in a finding about overlapping clusters.
const MaxOthers = 3

// checker is the state of one call of Check.
type checker struct {
	*diag.Findings
	set            *schema.ClusterSet
	groups         []Group
	firstByCluster map[int]map[int]Member // by group and cluster: the cluster's first member there
}

// Check reports prefixes that overlap inside one cluster. It also reports prefixes that
// overlap between clusters if one of them has globalnet: never.
func Check(found *diag.Findings, s *schema.ClusterSet, groups []Group) {
	c := &checker{Findings: found, set: s, groups: groups, firstByCluster: map[int]map[int]Member{}}
	for i := range c.groups {
		var overlapping firstMembers
		for outer := i; outer >= 0; outer = c.groups[outer].parent {
			c.checkWithinClusters(i, outer)
			overlapping.join(c.groups[outer].members)
		}
		overlapping.join(c.groups[i].innerMembers)
		for _, m := range c.groups[i].Members {
			if m.never {
				c.checkBetweenClusters(m, overlapping)
			}
		}
	}
}

// checkWithinClusters reports prefixes of one cluster that are equal or contain each other.
func (c *checker) checkWithinClusters(inner, outer int) {
	first := c.firstByCluster[outer]
	if first == nil {
		first = make(map[int]Member, len(c.groups[outer].Members))
		for _, m := range c.groups[outer].Members {
			if _, ok := first[m.Cluster]; !ok {
				first[m.Cluster] = m
			}
		}
		c.firstByCluster[outer] = first
	}
	for _, m := range c.groups[inner].Members {
		other, ok := first[m.Cluster]
		if !ok || other.Order == m.Order {
			continue
		}
		if other.Order > m.Order {
			m, other = other, m
		}
		hint := "list the larger prefix only"
		if fieldpath.Parent(m.Path) != fieldpath.Parent(other.Path) {
			hint = "pods and Services of a cluster need different ranges"
		}
		Report(c.Findings, Use{Path: m.Path, Prefix: m.Prefix}, Use{Path: other.Path, Prefix: other.Prefix}, hint)
	}
}

// checkBetweenClusters reports the prefixes that overlap a prefix of a cluster with globalnet:
// never. If both clusters have it, the later one gets the finding.
func (c *checker) checkBetweenClusters(m Member, overlapping firstMembers) {
	all := slices.Concat(overlapping.never, overlapping.others)
	others := slices.DeleteFunc(all, func(o Member) bool {
		return o.Cluster == m.Cluster || o.never && o.Order > m.Order
	})
	if len(others) == 0 {
		return
	}
	slices.SortFunc(others, func(a, b Member) int { return a.Order - b.Order })
	var paths []string
	affected := "cluster " + c.set.Spec.Clusters[m.Cluster].Name
	for _, o := range others[:min(len(others), MaxOthers)] {
		paths = append(paths, o.Path)
		if o.never {
			affected = "all of these clusters"
		}
	}
	c.Fail("overlap", m.Path, fmt.Sprintf("%s overlaps %s %s, and globalnet is never", m.Prefix, others[0].Path, others[0].Prefix),
		"set globalnet: auto (or always) for "+affected+", so that they reach each other through global IPs", paths...)
}
