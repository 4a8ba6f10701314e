package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// proven is what becomes of a pair whose cable changes.
const proven = "both cables are held until both ends proved the new one: nothing is lost"

// clusterPairs adds the links between clusters that exist on both sides: where what they
// are made with changes, and where the shape gives or takes one. It gives the
// pairs of clusters that have no way to each other any more.
func clusterPairs(want, have *side) (lost [][2]string) {
	w, h := want.fabric, have.fabric
	common := clustersOf(w)
	for name := range common {
		common[name] = h.Cluster(name) != nil
	}
	wantGraph, haveGraph := w.Graph(), h.Graph()
	for _, link := range slices.Concat(w.Links, h.Links) {
		a, b := link.Between[0], link.Between[1]
		if common[a] && common[b] && wantGraph.Linked(a, b) && haveGraph.Linked(a, b) {
			want.pair(w.Link(a, b))
			have.pair(h.Link(a, b))
		}
	}
	if shape(w) == shape(h) {
		return nil
	}
	for _, c := range w.Clusters {
		if !common[c.Name] {
			continue
		}
		before, now := haveGraph.Ways(c.Name, nil), wantGraph.Ways(c.Name, nil)
		for _, d := range w.Clusters {
			if d.Name <= c.Name || !common[d.Name] {
				continue
			}
			if before[d.Name] != nil && now[d.Name] == nil {
				lost = append(lost, [2]string{c.Name, d.Name})
			}
			switch is, was := len(now[d.Name]) == 1, len(before[d.Name]) == 1; {
			case is && !was:
				want.pair(w.Link(c.Name, d.Name))
			case was && !is:
				have.gone(h.Link(c.Name, d.Name), now[d.Name])
			}
		}
	}
	before, now := want.pairs, have.pairs
	want.pairs, have.pairs = fewPairs(before, now, "new pairs of clusters"), fewPairs(now, before, "pairs of clusters that end")
	return lost
}

func clustersOf(f *fabric.Fabric) map[string]bool {
	out := make(map[string]bool, len(f.Clusters))
	for i := range f.Clusters {
		out[f.Clusters[i].Name] = true
	}
	return out
}

// pair adds a link between clusters, once.
func (s *side) pair(l fabric.Link) {
	it := item{kind: kindPair, name: l.Between[0] + " - " + l.Between[1], path: "connectivity", fields: []diff.Field{
		field("driver", l.Driver),
		field("port", given0(l.Port, "of each gateway")),
		field("mtu", mtu(l.MTU)),
		field("keepalive", time.Duration(l.Keepalive).String()),
	}}
	if s.paired[it.name] {
		return
	}
	if s.paired == nil {
		s.paired = map[string]bool{}
	}
	s.paired[it.name] = true
	s.pairs = append(s.pairs, it)
}

// gone adds a link that the new shape lacks, with the way that its packets take then.
func (s *side) gone(l fabric.Link, way []string) {
	s.pair(l)
	if it := &s.pairs[len(s.pairs)-1]; len(way) > 0 {
		it.note = "they reach each other through " + strings.Join(way[:len(way)-1], ", then ")
	} else {
		it.broken = "they have no way to each other any more, and connections between them end"
	}
}

// fewPairs counts the pairs of one side that the other lacks, where they are too many to
// list. The two sides say so differently: as many that come as go are no change of one thing.
func fewPairs(pairs, others []item, what string) []item {
	there := map[string]bool{}
	for _, it := range others {
		there[it.name] = true
	}
	var both, alone []item
	broken := 0
	for _, it := range pairs {
		if there[it.name] {
			both = append(both, it)
			continue
		}
		alone = append(alone, it)
		if it.broken != "" {
			broken++
		}
	}
	if len(alone) <= maxLinks {
		return pairs
	}
	it := item{kind: kindPair, name: strconv.Itoa(len(alone)) + " " + what, path: "connectivity", count: len(alone)}
	if broken > 0 {
		it.broken = fmt.Sprintf("%d of them have no way to each other any more", broken)
	}
	return append(both, it)
}

func given0(n int, none string) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// maxEdges is how many links a shape's text lists.
const maxEdges = 16

// shape gives the shape of a clusterset as text; different shapes have different texts.
func shape(f *fabric.Fabric) string {
	s := &f.Shape
	switch s.Mode {
	case fabric.ModeHub:
		return "hub: " + strings.Join(s.Hubs, ", ")
	case fabric.ModeLinks:
		var edges []string
		sum := uint64(0)
		for _, e := range s.Edges {
			edges = append(edges, e[0]+" - "+e[1])
			sum += fabric.EdgeHash(e[0], e[1])
		}
		text := "links: " + strings.Join(edges, ", ")
		if len(edges) > maxEdges {
			text = fmt.Sprintf("links: %d (%x)", len(edges), sum)
		}
		if s.Partial {
			text += "; partial"
		}
		return text
	}
	return "mesh"
}

// ipsec gives the settings of IPsec as text; none while no link uses it.
func ipsec(f *fabric.Fabric) string {
	is := func(l fabric.Link) bool { return l.Driver == fabric.DriverIPsec }
	if f.Tunnel.Driver != fabric.DriverIPsec && !slices.ContainsFunc(f.Links, is) {
		return ""
	}
	s := &f.Tunnel.IPsec
	return fmt.Sprintf("%s, ports %d and %d, %s, rekey %s", s.Encapsulation, s.IKEPort, s.NATPort,
		strings.Join(s.Proposals, " "), time.Duration(s.Rekey))
}
