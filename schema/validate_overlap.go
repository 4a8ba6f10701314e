package schema

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diag"
)

// maxOthers is how many places a finding about overlapping clusters shows.
const maxOthers = 3

// betweenClusters finds prefixes that overlap inside one cluster, and those that
// overlap between clusters of which one may not have globalnet.
func (c *checker) betweenClusters() {
	for i := range c.groups {
		var with some
		for outer := i; outer >= 0; outer = c.groups[outer].parent {
			c.insideClusters(i, outer)
			with.join(c.groups[outer].here)
		}
		with.join(c.groups[i].below)
		for _, m := range c.groups[i].members {
			if m.never {
				c.collect(m, with)
			}
		}
	}
}

// insideClusters reports prefixes of one cluster that are equal or of which one
// contains the other.
func (c *checker) insideClusters(inner, outer int) {
	first := c.near[outer]
	if first == nil {
		first = make(map[int]member, len(c.groups[outer].members))
		for _, m := range c.groups[outer].members {
			if _, ok := first[m.cluster]; !ok {
				first[m.cluster] = m
			}
		}
		c.near[outer] = first
	}
	for _, m := range c.groups[inner].members {
		other, ok := first[m.cluster]
		if !ok || other.order == m.order {
			continue
		}
		if other.order > m.order {
			m, other = other, m
		}
		hint := "list the larger prefix only"
		if parentPath(m.path) != parentPath(other.path) {
			hint = "pods and Services of a cluster need different ranges"
		}
		c.overlap(use{path: m.path, prefix: m.prefix}, use{path: other.path, prefix: other.prefix}, hint)
	}
}

// clash is a prefix of a cluster without globalnet and those of others that it overlaps.
type clash struct {
	member member
	others []member
}

// collect finds what a prefix overlaps whose cluster says never. Of two that say
// never the later one gets the finding.
func (c *checker) collect(m member, with some) {
	found := clash{member: m}
	for _, other := range slices.Concat(with.never, with.others) {
		if other.cluster != m.cluster && !(other.never && other.order > m.order) {
			found.others = append(found.others, other)
		}
	}
	if len(found.others) > 0 {
		slices.SortFunc(found.others, func(a, b member) int { return a.order - b.order })
		found.others = found.others[:min(len(found.others), maxOthers)]
		c.clash(&found)
	}
}

func (c *checker) clash(found *clash) {
	m, other := found.member, found.others[0]
	d := diag.Diagnostic{
		Code: "overlap", Path: m.path, Summary: fmt.Sprintf("%s overlaps %s %s, and globalnet is never", m.prefix, other.path, other.prefix),
	}
	who := "cluster " + c.set.Spec.Clusters[m.cluster].Name
	for _, o := range found.others {
		d.Related = append(d.Related, diag.Related{Path: o.path})
		if o.never {
			who = "all of these clusters"
		}
	}
	d.Hint = "set globalnet: auto (or always) for " + who + ", so that they reach each other through global IPs"
	c.fail(d)
}
