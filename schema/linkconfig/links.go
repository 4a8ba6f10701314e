// Package linkconfig resolves the settings of each link between two clusters from spec.tunnel, the
// clusters and spec.links.
package linkconfig

import (
	"cmp"
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// Shape returns the shape in the format of the fabric.
func Shape(s *schema.ClusterSet) fabric.Shape {
	conn := &s.Spec.Connectivity
	switch conn.Mode {
	case schema.ModeHub:
		return fabric.Shape{Mode: schema.ModeHub, Hubs: slices.Sorted(slices.Values(conn.Hubs))}
	case schema.ModeLinks:
		out := fabric.Shape{Mode: schema.ModeLinks, Partial: conn.Partial}
		for _, l := range conn.Links {
			if len(l) == 2 {
				out.Edges = append(out.Edges, fabric.SortedPair(l[0], l[1]))
			}
		}
		slices.SortFunc(out.Edges, fabric.ComparePairs)
		return out
	}
	return fabric.Shape{}
}

// Graph returns the graph of the clusters and their links.
func Graph(s *schema.ClusterSet) *fabric.Graph {
	names := make([]string, 0, len(s.Spec.Clusters))
	for i := range s.Spec.Clusters {
		if name := s.Spec.Clusters[i].Name; name != "" {
			names = append(names, name)
		}
	}
	return fabric.NewGraph(Shape(s), names)
}

// Settings has the settings of all links.
type Settings struct {
	Graph           *fabric.Graph
	topology        *schema.ClusterSet
	clusters        map[string]*schema.Cluster
	Entries         map[[2]string]*schema.Link // the entries of spec.links, by pair of clusters
	overrides       []fabric.LinkSettings
	overrideCount   map[string]int            // by cluster: its links in overrides
	tunnels         map[string][]TunnelConfig // by cluster: the distinct tunnels of its links in overrides
	DistinctTunnels []TunnelConfig            // all distinct tunnels; the default one first
}

// Resolve resolves the settings of spec.tunnel, clusters and links. The topology must have its
// defaults.
func Resolve(s *schema.ClusterSet) *Settings {
	l := &Settings{Graph: Graph(s), topology: s, clusters: map[string]*schema.Cluster{}, Entries: map[[2]string]*schema.Link{}, overrideCount: map[string]int{},
		tunnels: map[string][]TunnelConfig{}}
	for i := range s.Spec.Clusters {
		c := &s.Spec.Clusters[i]
		if l.clusters[c.Name] == nil {
			l.clusters[c.Name] = c
		}
	}
	for i := range s.Spec.Links {
		if link := &s.Spec.Links[i]; len(link.Between) == 2 {
			if p := fabric.SortedPair(link.Between[0], link.Between[1]); l.Entries[p] == nil {
				l.Entries[p] = link
			}
		}
	}
	found, defaults := map[[2]string]bool{}, l.defaultLink([2]string{})
	l.DistinctTunnels = []TunnelConfig{tunnelConfigOf(&defaults)}
	addLink := func(a, b string) {
		p := fabric.SortedPair(a, b)
		if len(l.overrides) > MaxOverrides || found[p] || !l.Graph.Linked(a, b) {
			return
		}
		found[p] = true
		if link := l.Of(a, b); link != l.defaultLink(p) {
			l.overrides = append(l.overrides, link)
			k := tunnelConfigOf(&link)
			for _, name := range p {
				l.overrideCount[name]++
				l.tunnels[name] = appendUnique(l.tunnels[name], k)
			}
			l.DistinctTunnels = appendUnique(l.DistinctTunnels, k)
		}
	}
	for p := range l.Entries {
		addLink(p[0], p[1])
	}
	for name, c := range l.clusters {
		if len(l.overrides) > MaxOverrides {
			break
		}
		if t := &c.Tunnel; t.Driver != "" || t.MTU != 0 || t.Keepalive != nil {
			for _, other := range l.Graph.Neighbors(name) {
				addLink(name, other)
			}
		}
	}
	fabric.SortLinks(l.overrides)
	return l
}

// MaxOverrides bounds the links that differ from spec.tunnel: every link of 1000 clusters.
const MaxOverrides = 500_000

// Overrides returns the links that differ from spec.tunnel, sorted; at most MaxOverrides.
func (l *Settings) Overrides() []fabric.LinkSettings { return l.overrides }

func appendUnique(list []TunnelConfig, k TunnelConfig) []TunnelConfig {
	if slices.Contains(list, k) {
		return list
	}
	return append(list, k)
}

// defaultLink returns the settings of a link without overrides.
func (l *Settings) defaultLink(pair [2]string) fabric.LinkSettings {
	t := &l.topology.Spec.Tunnel
	out := fabric.LinkSettings{Between: pair, Driver: t.Driver, MTU: t.MTU}
	if t.Keepalive != nil {
		out.Keepalive = *t.Keepalive
	}
	return out
}

// Of returns the settings of the link between two clusters: of spec.links, otherwise of the
// clusters, otherwise of spec.tunnel.
func (l *Settings) Of(a, b string) fabric.LinkSettings {
	pair := fabric.SortedPair(a, b)
	out, entry := l.defaultLink(pair), l.Entries[pair]
	var first, second schema.TunnelOverride
	if c := l.clusters[pair[0]]; c != nil {
		first = c.Tunnel
	}
	if c := l.clusters[pair[1]]; c != nil {
		second = c.Tunnel
	}
	out.Driver = cmp.Or(first.Driver, second.Driver, out.Driver)
	out.MTU = minNonZero(cmp.Or(first.MTU, out.MTU), cmp.Or(second.MTU, out.MTU))
	out.Keepalive = minNonZero(*cmp.Or(first.Keepalive, &out.Keepalive), *cmp.Or(second.Keepalive, &out.Keepalive))
	if entry != nil {
		out.Driver, out.MTU = cmp.Or(entry.Driver, out.Driver), cmp.Or(entry.MTU, out.MTU)
		out.Port = entry.Port
		if entry.Keepalive != nil {
			out.Keepalive = *entry.Keepalive
		}
	}
	return out
}

// minNonZero returns the smaller of two numbers; 0 counts as unset.
func minNonZero[T cmp.Ordered](a, b T) T {
	var zero T
	if a == zero || b != zero && b < a {
		return b
	}
	return a
}

// TunnelConfig is a combination of settings that needs its own device on a gateway.
type TunnelConfig struct {
	Driver      string
	Port        int  // of the link; 0 = the port of the gateway
	NoKeepalive bool // without keepalives
}

func tunnelConfigOf(l *fabric.LinkSettings) TunnelConfig {
	return TunnelConfig{l.Driver, l.Port, l.Keepalive == 0}
}

// Tunnels returns the tunnels that the gateways of a cluster need, unsorted.
func (l *Settings) Tunnels(cluster string) []TunnelConfig {
	out := slices.Clone(l.tunnels[cluster])
	if l.Graph.Degree(cluster) > l.overrideCount[cluster] {
		out = append(out, l.DistinctTunnels[0])
	}
	return out
}

// Drivers returns the drivers of a cluster's links, sorted.
func (l *Settings) Drivers(cluster string) []string {
	var out []string
	for _, k := range l.Tunnels(cluster) {
		out = append(out, k.Driver)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Uses reports whether a cluster has a link with the driver.
func (l *Settings) Uses(cluster, driver string) bool {
	return slices.Contains(l.Drivers(cluster), driver)
}
