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
	clashes := map[int]*clash{} // by order of the member
	for i := range c.groups {
		g := &c.groups[i]
		for outer := g; outer != nil; outer = parentOf(c.groups, outer) {
			c.insideClusters(g, outer)
			c.collect(clashes, g, outer)
			if outer != g {
				c.collect(clashes, outer, g)
			}
		}
	}
	for _, clash := range clashes {
		c.clash(clash)
	}
}

// insideClusters reports prefixes of one cluster that are equal or of which one
// contains the other.
func (c *checker) insideClusters(inner, outer *group) {
	first := make(map[int]member, len(outer.members))
	for _, m := range outer.members {
		if _, ok := first[m.cluster]; !ok {
			first[m.cluster] = m
		}
	}
	for _, m := range inner.members {
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

func (c *checker) never(m member) bool {
	return c.set.Spec.Clusters[m.cluster].Globalnet == GlobalnetNever
}

// collect notes for each prefix of have whose cluster says never what it
// overlaps in with. Of two that say never the later one gets the finding.
func (c *checker) collect(clashes map[int]*clash, have, with *group) {
	for _, m := range have.members {
		if !c.never(m) {
			continue
		}
		for _, other := range with.members {
			if other.cluster == m.cluster || c.never(other) && other.order > m.order {
				continue
			}
			entry := clashes[m.order]
			if entry == nil {
				entry = &clash{member: m}
				clashes[m.order] = entry
			}
			if len(entry.others) == maxOthers {
				break
			}
			entry.others = append(entry.others, other)
		}
	}
}

func (c *checker) clash(found *clash) {
	slices.SortFunc(found.others, func(a, b member) int { return a.order - b.order })
	m, other := found.member, found.others[0]
	d := diag.Diagnostic{
		Code: "overlap", Path: m.path, Summary: fmt.Sprintf("%s overlaps %s %s, and globalnet is never", m.prefix, other.path, other.prefix),
	}
	who := "cluster " + c.set.Spec.Clusters[m.cluster].Name
	for _, o := range found.others {
		d.Related = append(d.Related, diag.Related{Path: o.path})
		if c.never(o) {
			who = "all of these clusters"
		}
	}
	d.Hint = "set globalnet: auto (or always) for " + who + ", so that they reach each other through global IPs"
	c.fail(d)
}
