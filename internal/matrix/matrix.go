// Package matrix says who may reach which export: one row an export, one cell a cluster,
// with the line of the topology that decides it and the addresses that each side sees. It
// asks schema/fabric/explain for each cell and, of what agents report, internal/arrival; it
// decides nothing itself. It is pure.
package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/arrival"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/explain"
)

// How much a matrix holds at most: a person reads no more, and each cell costs the way of
// a packet.
const (
	MaxClusters = 64
	MaxExports  = 512
)

// Input is what a matrix is made of, beside the fabric.
type Input struct {
	// First gives the gateways of the link that a pair of clusters prefers; nil = not told.
	First explain.First
	// Place gives file:line of a path of the topology; nil = not told.
	Place func(path string) string
	// Reports are what agents say; nil = nobody was asked.
	Reports *arrival.Reports
	// Clusters and Exports (namespace/name) are those to show; none = all, up to
	// MaxClusters and MaxExports.
	Clusters, Exports []string
}

// Matrix is who may reach what.
type Matrix struct {
	Clusterset string   `json:"clusterset"`
	Clusters   []string `json:"clusters"` // who asks, in the order of the cells
	Exports    []Export `json:"exports"`  // by namespace/name
	// MoreClusters and MoreExports are how many were left out.
	MoreClusters int `json:"moreClusters,omitempty"`
	MoreExports  int `json:"moreExports,omitempty"`
}

// Export is a row.
type Export struct {
	ID       string       `json:"id"`   // namespace/name
	Name     string       `json:"name"` // as it is asked for
	Type     string       `json:"type"`
	Dynamic  bool         `json:"dynamic,omitempty"` // made in clusters, as agents report; not in the topology
	Source   string       `json:"source,omitempty"`  // file:line
	Ports    []string     `json:"ports,omitempty"`   // 80, 53/UDP
	Policy   string       `json:"policy,omitempty"`  // which cluster's backends a caller reaches
	Affinity string       `json:"affinity,omitempty"`
	IPs      []netip.Addr `json:"ips,omitempty"`   // clusterset IPs; none of a headless export
	Allow    []string     `json:"allow,omitempty"` // none = every cluster
	Parts    []Part       `json:"parts"`           // one an exporting cluster
	Cells    []Cell       `json:"cells"`           // one a cluster of Matrix.Clusters
}

// Part is what one cluster has of an export.
type Part struct {
	Cluster string       `json:"cluster"`
	IPs     []netip.Addr `json:"ips,omitempty"` // by which other clusters ask for it
	// Ready is whether it has endpoints that are ready: yes | no | unknown; empty: nobody
	// was asked.
	Ready string `json:"ready,omitempty"`
	// Endpoints are those that are ready, as the cluster's own agents report, and at most
	// status.MaxBackends of them.
	Endpoints []string `json:"endpoints,omitempty"`
}

// Cell says whether the pods of one cluster may reach an export.
type Cell struct {
	Cluster string `json:"cluster"`
	Yes     bool   `json:"yes"`
	Own     bool   `json:"own,omitempty"` // the cluster exports it itself
	Why     string `json:"why"`
	Path    string `json:"path,omitempty"`   // of the topology, that decides it
	Source  string `json:"source,omitempty"` // file:line of Path
	// Trips are the ways to the exporting clusters: what the client asks for, over which
	// links, and as whom the other side sees it.
	Trips []explain.Trip `json:"trips"`
	// Now is whether it arrives, as agents report: yes | no | unknown; empty: nobody was
	// asked, or the topology does not allow it.
	Now string `json:"now,omitempty"`
	// NowWhy says why not.
	NowWhy []string `json:"nowWhy,omitempty"`
}

// Sees gives the addresses, ranges and prefixes as which other clusters see the client;
// none where they see its own, or it stays in its cluster.
func (c *Cell) Sees() []string {
	var out []string
	for i := range c.Trips {
		if c.Trips[i].Yes {
			out = append(out, c.Trips[i].Sources...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Asks gives the addresses that the client asks for where it reaches the export.
func (c *Cell) Asks() []netip.Addr {
	var out []netip.Addr
	for i := range c.Trips {
		if c.Trips[i].Yes {
			out = append(out, c.Trips[i].Asked...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// builder is a matrix in the making.
type builder struct {
	Input
	fabric *fabric.Fabric
	asked  *explain.Clusterset
	out    *Matrix
}

// New makes the matrix of a fabric, which must not change while it does. The error says
// that it has no such cluster or export as the input names.
func New(f *fabric.Fabric, in Input) (*Matrix, error) {
	if in.First == nil {
		in.First = func(string, string) (string, string, bool) { return "", "", false }
	}
	if in.Place == nil {
		in.Place = func(string) string { return "" }
	}
	b := &builder{Input: in, fabric: f, asked: explain.New(f, in.First), out: &Matrix{Clusterset: f.Name, Exports: []Export{}}}
	b.out.Clusters, b.out.MoreClusters = chosen(in.Clusters, slices.Sorted(slices.Values(f.ClusterNames())), MaxClusters)
	for _, name := range b.out.Clusters {
		if f.Cluster(name) == nil {
			return nil, fmt.Errorf("there is no cluster %s in the topology", name)
		}
	}
	rows := b.rows()
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	var shown []string
	shown, b.out.MoreExports = chosen(in.Exports, ids, MaxExports)
	for _, id := range shown {
		i := slices.Index(ids, id)
		if i < 0 {
			return nil, fmt.Errorf("there is no export %s in the topology", id)
		}
		if err := b.fill(&rows[i]); err != nil {
			return nil, err
		}
		b.out.Exports = append(b.out.Exports, rows[i])
	}
	return b.out, nil
}

// chosen gives those that are named, or all, up to a number, and how many are left out.
func chosen(named, all []string, most int) ([]string, int) {
	if len(named) > 0 {
		return named, len(all) - len(named)
	}
	shown := all[:min(len(all), most)]
	return shown, len(all) - len(shown)
}

// rows gives the exports without their cells: those of the topology, and those that agents
// report beside them.
func (b *builder) rows() []Export {
	var out []Export
	for i := range b.fabric.Exports {
		e := &b.fabric.Exports[i]
		row := Export{
			ID: e.ID(), Name: e.Name + "." + e.Namespace + ".svc." + b.fabric.Domain, Type: e.Type,
			Source: b.Place("exports[" + e.ID() + "]"), Affinity: e.Affinity, IPs: e.VIPs, Allow: e.Allow,
		}
		if e.Type == fabric.ClusterSetIP {
			row.Policy = e.Balance.Policy
		}
		for _, p := range e.Ports {
			text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
			row.Ports = append(row.Ports, strings.TrimSuffix(text, "/TCP"))
		}
		for j := range e.Clusters {
			row.Parts = append(row.Parts, Part{Cluster: e.Clusters[j].Name, IPs: e.Clusters[j].IPs})
		}
		out = append(out, row)
	}
	if b.Reports != nil {
		out = b.reported(out)
	}
	slices.SortFunc(out, func(a, b Export) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// reported adds what agents say of exports.
func (b *builder) reported(rows []Export) []Export {
	byID := map[string]int{}
	for i := range rows {
		byID[rows[i].ID] = i
		for j := range rows[i].Parts {
			rows[i].Parts[j].Ready = status.Unknown
		}
	}
	for i := range b.Reports.Agents {
		s := &b.Reports.Agents[i]
		for j := range s.Exports {
			e := &s.Exports[j]
			id := e.Namespace + "/" + e.Name
			at, known := byID[id]
			if !known {
				if !e.Dynamic {
					continue // of another fabric than the topology gives
				}
				at = len(rows)
				byID[id] = at
				rows = append(rows, Export{
					ID: id, Name: e.Name + "." + e.Namespace + ".svc." + b.fabric.Domain, Type: e.Type, Dynamic: true,
					Source: b.Place("dynamicExports"), Ports: e.Ports, Policy: e.Policy,
				})
			}
			for k := range e.Clusters {
				rows[at].hear(s.Cluster, &e.Clusters[k])
			}
		}
	}
	return rows
}

// hear takes what an agent says of a part. Its own cluster knows best; of the others, yes
// counts more than no, and that more than nothing.
func (e *Export) hear(teller string, said *status.ExportCluster) {
	i := slices.IndexFunc(e.Parts, func(p Part) bool { return p.Cluster == said.Name })
	if i < 0 {
		if !e.Dynamic {
			return
		}
		i = len(e.Parts)
		e.Parts = append(e.Parts, Part{Cluster: said.Name, Ready: status.Unknown})
	}
	p := &e.Parts[i]
	rank := []string{status.Unknown, "no", "yes"}
	if teller == said.Name && len(said.Backends) >= len(p.Endpoints) {
		p.Ready, p.Endpoints = said.Ready, said.Backends
	} else if len(p.Endpoints) == 0 && slices.Index(rank, said.Ready) > slices.Index(rank, p.Ready) {
		p.Ready = said.Ready
	}
}

// fill asks for each cluster.
func (b *builder) fill(row *Export) error {
	slices.SortFunc(row.Parts, func(a, b Part) int { return strings.Compare(a.Cluster, b.Cluster) })
	for _, name := range b.out.Clusters {
		answer, err := b.asked.Ask(explain.From{Cluster: name}, explain.To{Export: row.ID})
		if err != nil {
			return fmt.Errorf("ask for %s from %s: %w", row.ID, name, err)
		}
		c := Cell{Cluster: name, Own: row.exportedBy(name), Yes: answer.Yes, Why: answer.Why, Trips: answer.Trips}
		if row.Dynamic {
			c.dynamic(row)
		}
		c.decide()
		c.Source = b.Place(c.Path)
		if b.Reports != nil && c.Yes && !row.Dynamic {
			if now := arrival.Look(b.fabric, answer, *b.Reports); now != nil {
				c.Now = now.Verdict
				if c.Now != arrival.Arrives {
					c.NowWhy = reasons(now)
				}
			}
		}
		row.Cells = append(row.Cells, c)
	}
	return nil
}

func (e *Export) exportedBy(cluster string) bool {
	return slices.ContainsFunc(e.Parts, func(p Part) bool { return p.Cluster == cluster })
}

// dynamic leaves of the trips those to clusters that do export it now.
func (c *Cell) dynamic(row *Export) {
	c.Trips = slices.DeleteFunc(c.Trips, func(t explain.Trip) bool { return !row.exportedBy(t.Cluster) })
	if c.Own {
		c.Trips = append(c.Trips, explain.Trip{Cluster: c.Cluster, Yes: true, Decided: "dynamicExports", Served: "pods of " + row.ID})
	}
	if c.Yes = slices.ContainsFunc(c.Trips, func(t explain.Trip) bool { return t.Yes }); c.Yes {
		c.Why = "pods of " + c.Cluster + " reach " + row.ID + ", which clusters export by themselves"
	}
}

// decide finds the path of the topology that decides: of the first trip that has the answer
// of the whole, the own cluster's before those of others.
func (c *Cell) decide() {
	for _, own := range []bool{true, false} {
		for i := range c.Trips {
			if t := &c.Trips[i]; t.Yes == c.Yes && (t.Cluster == c.Cluster) == own {
				c.Path = t.Decided
				return
			}
		}
	}
	if c.Path == "" {
		c.Path = "dynamicExports"
	}
}

// reasons gives why nothing is known to arrive, each once.
func reasons(now *arrival.Live) []string {
	var out []string
	for _, t := range now.Trips {
		for _, why := range t.Why {
			if t.Verdict == now.Verdict && !slices.Contains(out, why) {
				out = append(out, why)
			}
		}
	}
	return out
}
