package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// makeBeforeBreakNote describes the effect on a pair whose tunnel changes.
const makeBeforeBreakNote = "make-before-break: no packet is lost"

// addPairs adds the links between clusters to both sides if their settings change, or if the shape
// adds or removes them. It returns the pairs of clusters that lose their path to each other.
func addPairs(want, have *snapshot) (lost [][2]string) {
	w, h := want.fabric, have.fabric
	common := clusterSet(w)
	for name := range common {
		common[name] = h.Cluster(name) != nil
	}
	wantGraph, haveGraph := w.Graph(), h.Graph()
	for _, link := range slices.Concat(w.Links, h.Links) {
		a, b := link.Between[0], link.Between[1]
		if common[a] && common[b] && wantGraph.Linked(a, b) && haveGraph.Linked(a, b) {
			want.addPair(w.Link(a, b))
			have.addPair(h.Link(a, b))
		}
	}
	if shape(w) == shape(h) {
		return nil
	}
	previousComponents, components := componentIndex(haveGraph), componentIndex(wantGraph)
	members := slices.DeleteFunc(slices.Sorted(maps.Keys(common)), func(name string) bool { return !common[name] })
	for i, a := range members {
		previousComponent, component := previousComponents[a], components[a]
		for _, b := range members[i+1:] {
			if previousComponents[b] == previousComponent && components[b] != component {
				lost = append(lost, [2]string{a, b})
			}
		}
	}
	var added, removed [][2]string
	broken := 0
	for _, a := range members {
		neighbors, previousNeighbors := wantGraph.Neighbors(a), haveGraph.Neighbors(a)
		for _, b := range difference(neighbors, previousNeighbors) {
			if common[b] && a < b {
				added = append(added, [2]string{a, b})
			}
		}
		for _, b := range difference(previousNeighbors, neighbors) {
			if common[b] && a < b {
				removed = append(removed, [2]string{a, b})
				if components[b] != components[a] {
					broken++
				}
			}
		}
	}
	// A thousand clusters that change to hubs lose half a million pairs, so build only the
	// listed ones.
	if len(added) > maxLinks {
		want.pairs = append(want.pairs, pairsItem(len(added), 0, "new pairs of clusters"))
	} else {
		for _, p := range added {
			want.addPair(want.fabric.Link(p[0], p[1]))
		}
	}
	if len(removed) > maxLinks {
		have.pairs = append(have.pairs, pairsItem(len(removed), broken, "pairs of clusters that end"))
	} else {
		for _, p := range removed {
			have.addRemovedPair(have.fabric.Link(p[0], p[1]), wantGraph.Paths(p[0], nil)[p[1]])
		}
	}
	return lost
}

// componentIndex returns the number of each cluster's component. Clusters of one component have
// paths to each other.
func componentIndex(g *fabric.Graph) map[string]int {
	out := make(map[string]int, g.Len())
	for i, group := range g.Components() {
		for _, name := range group {
			out[name] = i
		}
	}
	return out
}

func clusterSet(f *fabric.Fabric) map[string]bool {
	out := make(map[string]bool, len(f.Clusters))
	for i := range f.Clusters {
		out[f.Clusters[i].Name] = true
	}
	return out
}

// addPair adds a link between clusters, if s does not contain it.
func (s *snapshot) addPair(l fabric.LinkSettings) {
	it := item{kind: kindPair, name: l.Between[0] + " - " + l.Between[1], path: "connectivity", fields: []diff.Field{
		field("driver", l.Driver),
		field("port", intOr(l.Port, "of each gateway")),
		field("mtu", mtu(l.MTU)),
		field("keepalive", time.Duration(l.Keepalive).String()),
	}}
	if s.pairNames[it.name] {
		return
	}
	if s.pairNames == nil {
		s.pairNames = map[string]bool{}
	}
	s.pairNames[it.name] = true
	s.pairs = append(s.pairs, it)
}

// addRemovedPair adds a link that the new shape lacks, with the new path of its packets.
func (s *snapshot) addRemovedPair(l fabric.LinkSettings, path []string) {
	s.addPair(l)
	if it := &s.pairs[len(s.pairs)-1]; len(path) > 0 {
		it.remark = "they reach each other through " + strings.Join(path[:len(path)-1], ", then ")
	} else {
		it.disruptive = "they lose the path to each other, and connections between them end"
	}
}

// pairsItem returns one item for pairs that only one side has. The texts of the two sides differ,
// so that equal numbers of added and removed pairs are not one unchanged item.
func pairsItem(n, broken int, what string) item {
	it := item{kind: kindPair, name: strconv.Itoa(n) + " " + what, path: "connectivity", count: n}
	if broken > 0 {
		it.disruptive = fmt.Sprintf("%d of them lose the path to each other", broken)
	}
	return it
}

func intOr(n int, none string) string {
	if n == 0 {
		return none
	}
	return strconv.Itoa(n)
}

// maxEdges is the maximum number of links in the text of a shape.
const maxEdges = 16

// shape returns the shape of a clusterset as text. Different shapes have different texts.
func shape(f *fabric.Fabric) string {
	s := &f.Shape
	switch s.Mode {
	case fabric.ModeHub:
		return "hub: " + strings.Join(s.Hubs, ", ")
	case fabric.ModeExplicit:
		var edges []string
		sum := uint64(0)
		for _, e := range s.Edges {
			edges = append(edges, e[0]+" - "+e[1])
			sum += fabric.LinkHash(e[0], e[1])
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

// ipsec returns the settings of IPsec as text; empty if no link uses IPsec.
func ipsec(f *fabric.Fabric) string {
	is := func(l fabric.LinkSettings) bool { return l.Driver == fabric.DriverIPsec }
	if f.Tunnel.Driver != fabric.DriverIPsec && !slices.ContainsFunc(f.Links, is) {
		return ""
	}
	s := &f.Tunnel.IPsec
	return fmt.Sprintf("%s, ports %d and %d, %s, rekey %s", s.Encapsulation, s.IKEPort, s.NATPort,
		strings.Join(s.Proposals, " "), time.Duration(s.Rekey))
}
