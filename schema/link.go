package schema

import (
	"cmp"
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// Shape gives the shape as agents have it.
func (s *ClusterSet) Shape() fabric.Shape {
	conn := &s.Spec.Connectivity
	switch conn.Mode {
	case ModeHub:
		return fabric.Shape{Mode: ModeHub, Hubs: slices.Sorted(slices.Values(conn.Hubs))}
	case ModeLinks:
		out := fabric.Shape{Mode: ModeLinks, Partial: conn.Partial}
		for _, l := range conn.Links {
			if len(l) == 2 {
				out.Edges = append(out.Edges, fabric.Pair(l[0], l[1]))
			}
		}
		slices.SortFunc(out.Edges, fabric.ComparePairs)
		return out
	}
	return fabric.Shape{}
}

// Graph gives the clusters in their shape.
func (s *ClusterSet) Graph() *fabric.Graph {
	names := make([]string, 0, len(s.Spec.Clusters))
	for i := range s.Spec.Clusters {
		if name := s.Spec.Clusters[i].Name; name != "" {
			names = append(names, name)
		}
	}
	return fabric.NewGraph(s.Shape(), names)
}

// Links knows what each link is made with.
type Links struct {
	Graph    *fabric.Graph
	set      *ClusterSet
	clusters map[string]*Cluster
	pairs    map[[2]string]*Link
	special  []fabric.Link
	degree   map[string]int     // by cluster: its links among special
	cables   map[string][]cable // by cluster: what these are made with, each once
	kinds    []cable            // what links are made with anywhere, each once; the usual ones first
}

// Links resolves what spec.tunnel, clusters and links say. The receiver must
// have its defaults.
func (s *ClusterSet) Links() *Links {
	l := &Links{Graph: s.Graph(), set: s, clusters: map[string]*Cluster{}, pairs: map[[2]string]*Link{}, degree: map[string]int{},
		cables: map[string][]cable{}}
	for i := range s.Spec.Clusters {
		c := &s.Spec.Clusters[i]
		if l.clusters[c.Name] == nil {
			l.clusters[c.Name] = c
		}
	}
	for i := range s.Spec.Links {
		if link := &s.Spec.Links[i]; len(link.Between) == 2 {
			if p := fabric.Pair(link.Between[0], link.Between[1]); l.pairs[p] == nil {
				l.pairs[p] = link
			}
		}
	}
	l.findSpecial()
	return l
}

// maxSpecial bounds the links that differ from spec.tunnel: every link of 1000 clusters.
const maxSpecial = 500_000

// Special gives the links that differ from spec.tunnel, in order; not all of them
// where there are more than maxSpecial.
func (l *Links) Special() []fabric.Link { return l.special }

func (l *Links) findSpecial() {
	found, usual := map[[2]string]bool{}, l.usual([2]string{})
	l.kinds = []cable{cableOf(&usual)}
	note := func(a, b string) {
		p := fabric.Pair(a, b)
		if len(l.special) > maxSpecial || found[p] || !l.Graph.Linked(a, b) {
			return
		}
		found[p] = true
		if link := l.Of(a, b); link != l.usual(p) {
			l.special = append(l.special, link)
			k := cableOf(&link)
			for _, name := range p {
				l.degree[name]++
				l.cables[name] = once(l.cables[name], k)
			}
			l.kinds = once(l.kinds, k)
		}
	}
	for p := range l.pairs {
		note(p[0], p[1])
	}
	for name, c := range l.clusters {
		if len(l.special) > maxSpecial {
			break
		}
		if t := &c.Tunnel; t.Driver != "" || t.MTU != 0 || t.Keepalive != nil {
			for _, other := range l.Graph.Neighbours(name) {
				note(name, other)
			}
		}
	}
	fabric.SortLinks(l.special)
}

func once(list []cable, k cable) []cable {
	if slices.Contains(list, k) {
		return list
	}
	return append(list, k)
}

// usual is a link of which nobody says anything.
func (l *Links) usual(pair [2]string) fabric.Link {
	t := &l.set.Spec.Tunnel
	out := fabric.Link{Between: pair, Driver: t.Driver, MTU: t.MTU}
	if t.Keepalive != nil {
		out.Keepalive = *t.Keepalive
	}
	return out
}

// Of gives what the link between two clusters is made with: what links says,
// otherwise what the clusters say, otherwise spec.tunnel.
func (l *Links) Of(a, b string) fabric.Link {
	pair := fabric.Pair(a, b)
	out, own := l.usual(pair), l.pairs[pair]
	var one, two TunnelOverride
	if c := l.clusters[pair[0]]; c != nil {
		one = c.Tunnel
	}
	if c := l.clusters[pair[1]]; c != nil {
		two = c.Tunnel
	}
	out.Driver = cmp.Or(one.Driver, two.Driver, out.Driver)
	out.MTU = least(cmp.Or(one.MTU, out.MTU), cmp.Or(two.MTU, out.MTU))
	out.Keepalive = least(*cmp.Or(one.Keepalive, &out.Keepalive), *cmp.Or(two.Keepalive, &out.Keepalive))
	if own != nil {
		out.Driver, out.Port, out.MTU = cmp.Or(own.Driver, out.Driver), own.Port, cmp.Or(own.MTU, out.MTU)
		if own.Keepalive != nil {
			out.Keepalive = *own.Keepalive
		}
	}
	return out
}

// least gives the smaller of two, where zero is none.
func least[T cmp.Ordered](a, b T) T {
	var zero T
	if a == zero || b != zero && b < a {
		return b
	}
	return a
}

// cable is what a gateway must have for some of its links.
type cable struct {
	driver string
	port   int  // of the link; 0: the gateway's own
	quiet  bool // nothing is sent to keep it open
}

func cableOf(l *fabric.Link) cable { return cable{l.Driver, l.Port, l.Keepalive == 0} }

// of gives what the gateways of a cluster must have, in no order.
func (l *Links) of(cluster string) []cable {
	out := slices.Clone(l.cables[cluster])
	if l.Graph.Degree(cluster) > l.degree[cluster] {
		out = append(out, l.kinds[0])
	}
	return out
}

// Drivers gives the drivers of a cluster's links, sorted.
func (l *Links) Drivers(cluster string) []string {
	var out []string
	for _, k := range l.of(cluster) {
		out = append(out, k.driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Uses reports whether a cluster has a link with the driver.
func (l *Links) Uses(cluster, driver string) bool { return slices.Contains(l.Drivers(cluster), driver) }
