// Package clustermap is the map of a clusterset: the clusters, gateways and links of a fabric, with
// their changes and states. It draws the map as SVG, Mermaid, Markdown and DOT. It is pure.
package clustermap

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Changes of a cluster, gateway or link in a comparison; empty if unchanged.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// States of a gateway, link or cluster, as agents report them; empty if no agent was queried.
const (
	Up       = "up"
	Degraded = "partly" // a part of it is down, and traffic passes
	Down     = "down"
	Unknown  = "unknown" // no agent that observes it has responded
	Silent   = "silent"  // of a gateway: its agent was queried and does not respond; links to it may be up
)

// MaxListed is the maximum number of clusters in a mesh whose links are all listed. A mesh of a
// thousand clusters has half a million links: see Map.MeshImplied.
const MaxListed = 64

// Map is the content of a map.
type Map struct {
	Clusterset string    `json:"clusterset"`
	Shape      string    `json:"shape"` // mesh, hub or links
	Clusters   []Cluster `json:"clusters"`
	Links      []Link    `json:"links"`
	// MeshImplied reports whether every two clusters are linked. Then Links has only links that
	// differ from the others or that have a state to report.
	MeshImplied bool `json:"meshImplied,omitempty"`
	// Omitted is the number of omitted clusters.
	Omitted int `json:"more,omitempty"`
}

// Cluster is a cluster of the map.
type Cluster struct {
	Name        string    `json:"name"`
	PodCIDRs    []string  `json:"podCIDRs"`
	GlobalCIDRs []string  `json:"globalCIDRs,omitempty"` // none for a flat cluster
	Hub         bool      `json:"hub,omitempty"`         // forwards traffic between other clusters
	Exports     int       `json:"exports"`               // number of declared exports that the cluster is part of
	Gateways    []Gateway `json:"gateways"`
	Change      string    `json:"change,omitempty"` // added | changed | removed
	State       string    `json:"state,omitempty"`  // up | partly | down | unknown
}

// Gateway is a gateway of a cluster.
type Gateway struct {
	Name      string   `json:"name"`
	Node      string   `json:"node"`
	Endpoints []string `json:"endpoints,omitempty"`
	Change    string   `json:"change,omitempty"`
	State     string   `json:"state,omitempty"`
}

// Link is the link between two clusters.
type Link struct {
	Between [2]string `json:"between"` // sorted names of the clusters
	Driver  string    `json:"driver"`
	Change  string    `json:"change,omitempty"`
	State   string    `json:"state,omitempty"`
	// Explained reports whether every broken pair of gateways has a gateway that is down.
	Explained bool `json:"explained,omitempty"`
	// Uses are the pairs of gateways with active links (a-b, in the order of Between), as
	// agents report them.
	Uses []string `json:"uses,omitempty"`
	RTT  int64    `json:"rttMicroseconds,omitempty"` // average of the pairs in Uses
	Loss float64  `json:"loss,omitempty"`            // 0..1, the maximum of the pairs in Uses
}

// New returns the map of a fabric. Clusters are sorted by name.
func New(f *fabric.Fabric) *Map { return build(f, nil) }

// Compare returns the map of after with the changes from before. It includes removed
// clusters, gateways and links.
func Compare(before, after *fabric.Fabric) *Map { return build(after, before) }

// Subset returns the map of some clusters of a fabric, in the given order. Map.Omitted is the
// number of the other clusters.
func Subset(f *fabric.Fabric, names []string) *Map {
	m := &Map{Clusterset: f.Name, Shape: shape(f), Omitted: len(f.Clusters) - len(names)}
	graph := f.Graph()
	for i, a := range names {
		m.Clusters = append(m.Clusters, cluster(f, graph, f.Cluster(a)))
		for _, b := range names[i+1:] {
			if graph.Linked(a, b) {
				m.Links = append(m.Links, Link{Between: fabric.SortedPair(a, b), Driver: f.Link(a, b).Driver})
			}
		}
	}
	m.count(f)
	return m
}

// Neighborhood returns the part of a fabric with one cluster and its linked clusters. It returns an
// error if the cluster does not exist.
func Neighborhood(f *fabric.Fabric, name string) (*fabric.Fabric, error) {
	if f.Cluster(name) == nil {
		return nil, fmt.Errorf("there is no cluster %s in the topology", name)
	}
	near := f.Graph().Neighbors(name)
	out := *f
	out.Clusters = slices.DeleteFunc(slices.Clone(f.Clusters), func(c fabric.Cluster) bool {
		return c.Name != name && !slices.Contains(near, c.Name)
	})
	out.Shape = fabric.Shape{Mode: fabric.ModeExplicit}
	for _, other := range near {
		out.Shape.Edges = append(out.Shape.Edges, fabric.SortedPair(name, other))
	}
	return &out, nil
}

func build(f, before *fabric.Fabric) *Map {
	m := &Map{Clusterset: f.Name, Shape: shape(f), Links: []Link{}}
	graph := f.Graph()
	names := f.ClusterNames()
	slices.Sort(names)
	m.MeshImplied = m.Shape == fabric.ModeMesh && len(names) > MaxListed
	for _, name := range names {
		m.Clusters = append(m.Clusters, cluster(f, graph, f.Cluster(name)))
	}
	m.count(f)
	if before != nil {
		m.compareClusters(f, before)
	}
	if m.MeshImplied && before == nil { // few of half a million links differ
		for _, l := range f.Links {
			if l.Driver != f.Tunnel.Driver && graph.Linked(l.Between[0], l.Between[1]) {
				m.Links = append(m.Links, Link{Between: l.Between, Driver: l.Driver})
			}
		}
		return m
	}
	old, oldGraph := before, (*fabric.Graph)(nil)
	if before != nil {
		oldGraph = before.Graph()
	} else {
		old = &fabric.Fabric{}
	}
	for i := range m.Clusters {
		for j := i + 1; j < len(m.Clusters); j++ {
			a, b := m.Clusters[i].Name, m.Clusters[j].Name
			now, was := graph.Linked(a, b), oldGraph != nil && oldGraph.Linked(a, b)
			l := Link{Between: [2]string{a, b}}
			have, had := f.Link(a, b), old.Link(a, b)
			switch {
			case now && was && have != had:
				l.Change = Changed
			case now && before != nil && !was:
				l.Change = Added
			case !now && was:
				l.Change, have = Removed, had
			case !now:
				continue
			}
			l.Driver = have.Driver
			if m.MeshImplied && l.Change == "" && have.Driver == f.Tunnel.Driver {
				continue
			}
			m.Links = append(m.Links, l)
		}
	}
	return m
}

func shape(f *fabric.Fabric) string { return cmp.Or(f.Shape.Mode, fabric.ModeMesh) }

func cluster(f *fabric.Fabric, graph *fabric.Graph, c *fabric.Cluster) Cluster {
	out := Cluster{
		Name: c.Name, PodCIDRs: humanize.Strings(c.PodCIDRs), Gateways: []Gateway{},
		Hub: f.Shape.Mode == fabric.ModeHub && graph.ForwardsTransit(c.Name),
	}
	if c.Globalnet {
		out.GlobalCIDRs = humanize.Strings(c.GlobalCIDRs)
	}
	for i := range c.Gateways {
		out.Gateways = append(out.Gateways, gateway(&c.Gateways[i]))
	}
	return out
}

func gateway(g *fabric.Gateway) Gateway {
	return Gateway{Name: g.Name, Node: g.Node, Endpoints: g.Endpoints}
}

// count counts the exports of each cluster.
func (m *Map) count(f *fabric.Fabric) {
	byName := map[string]*Cluster{}
	for i := range m.Clusters {
		byName[m.Clusters[i].Name] = &m.Clusters[i]
	}
	for i := range f.Exports {
		for _, member := range f.Exports[i].Clusters {
			if c := byName[member.Name]; c != nil {
				c.Exports++
			}
		}
	}
}

// compareClusters marks added and changed clusters and gateways, and adds the removed ones
// to the map.
func (m *Map) compareClusters(f, before *fabric.Fabric) {
	for i := range m.Clusters {
		c := &m.Clusters[i]
		was := before.Cluster(c.Name)
		if was == nil {
			c.Change = Added
			continue
		}
		if !reflect.DeepEqual(withoutKeys(*was), withoutKeys(*f.Cluster(c.Name))) {
			c.Change = Changed
		}
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if k := find(was.Gateways, g.Name); k < 0 {
				g.Change = Added
			} else if !reflect.DeepEqual(gateway(&was.Gateways[k]), *g) {
				g.Change = Changed
			}
		}
		for j := range was.Gateways {
			if g := gateway(&was.Gateways[j]); find(f.Cluster(c.Name).Gateways, g.Name) < 0 {
				g.Change = Removed
				c.Gateways = append(c.Gateways, g)
			}
		}
	}
	graph, count := before.Graph(), len(m.Clusters)
	for i := range before.Clusters {
		if c := &before.Clusters[i]; f.Cluster(c.Name) == nil {
			removed := cluster(before, graph, c)
			removed.Change = Removed
			m.Clusters = append(m.Clusters, removed)
		}
	}
	if len(m.Clusters) > count {
		slices.SortFunc(m.Clusters, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// withoutKeys returns a cluster without its keys. A preview has no keys, and the map does not show
// key changes.
func withoutKeys(c fabric.Cluster) fabric.Cluster {
	c.Gateways = slices.Clone(c.Gateways)
	for i := range c.Gateways {
		c.Gateways[i].Keys = nil
	}
	return c
}

func find(gateways []fabric.Gateway, name string) int {
	return slices.IndexFunc(gateways, func(g fabric.Gateway) bool { return g.Name == name })
}

// SVG draws the map. Its colours follow the reader's light or dark scheme.
func (m *Map) SVG() string { return m.Drawing().String() }
