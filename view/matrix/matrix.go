// Package matrix computes who can reach which export: one row per export, one cell per cluster. A
// cell has the line of the topology that decides, and the addresses on each side. Package access
// computes the cells. Package matrix is pure.
package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Limits of a matrix. A larger matrix is unreadable, and each cell requires a trace of packets.
const (
	MaxClusters = 64
	MaxExports  = 512
)

// Input is the input of a matrix in addition to the fabric.
type Input struct {
	// PreferredLink returns the gateways of the link that a pair of clusters prefers; nil if unknown.
	PreferredLink access.PreferredLink
	// Position returns file:line of a topology path; nil if unknown.
	Position func(path string) string
	// Reports are the agents' reports; nil if no agent was queried.
	Reports *access.AgentReports
	// Clusters and Exports (namespace/name) are the columns and rows; empty = all, up to
	// MaxClusters and MaxExports.
	Clusters, Exports []string
}

// Matrix shows who can reach which export.
type Matrix struct {
	Clusterset string   `json:"clusterset"`
	Clusters   []string `json:"clusters"` // client clusters, in the order of the cells
	Exports    []Export `json:"exports"`  // sorted by namespace/name
	// MoreClusters and MoreExports are the numbers of omitted clusters and exports.
	MoreClusters int `json:"moreClusters,omitempty"`
	MoreExports  int `json:"moreExports,omitempty"`
}

// Export is a row.
type Export struct {
	ID       string       `json:"id"`   // namespace/name
	Name     string       `json:"name"` // as the user spelled it
	Type     string       `json:"type"`
	Dynamic  bool         `json:"dynamic,omitempty"` // a dynamic export that agents report; not in the topology
	Source   string       `json:"source,omitempty"`  // file:line
	Ports    []string     `json:"ports,omitempty"`   // 80, 53/UDP
	Policy   string       `json:"policy,omitempty"`  // which cluster's backends a client reaches
	Affinity string       `json:"affinity,omitempty"`
	IPs      []netip.Addr `json:"ips,omitempty"`   // clusterset IPs; none for a headless export
	Allow    []string     `json:"allow,omitempty"` // empty = every cluster
	Parts    []Part       `json:"parts"`           // one per exporting cluster
	Cells    []Cell       `json:"cells"`           // one per cluster of Matrix.Clusters
}

// Part is one cluster's part of an export.
type Part struct {
	Cluster string       `json:"cluster"`
	IPs     []netip.Addr `json:"ips,omitempty"` // addresses for clients in other clusters
	// Ready reports whether it has ready endpoints: yes | no | unknown; empty if no agent
	// was queried.
	Ready string `json:"ready,omitempty"`
	// Endpoints are the ready endpoints that the cluster's own agents report, at most
	// status.MaxBackends.
	Endpoints []string `json:"endpoints,omitempty"`
}

// Cell reports whether the pods of one cluster can reach an export.
type Cell struct {
	Cluster     string `json:"cluster"`
	Allowed     bool   `json:"allowed"`
	SameCluster bool   `json:"sameCluster,omitempty"` // the cluster exports it
	Reason      string `json:"reason"`
	Path        string `json:"path,omitempty"`   // topology path that decides
	Source      string `json:"source,omitempty"` // file:line of Path
	// Destinations are the exporting clusters with the path to them, without live parts.
	Destinations []access.Destination `json:"destinations"`
	// LiveVerdict reports whether traffic arrives, according to the agents: yes | no | unknown.
	// It is empty if no agent was queried or the topology does not allow the traffic.
	LiveVerdict string   `json:"liveVerdict,omitempty"`
	LiveReasons []string `json:"liveReasons,omitempty"` // empty if the verdict is yes
	// DNSProblem is why the name of the export is not resolved in the cluster, according to the
	// agents. It is empty if the name is resolved, if this is unknown, or if the topology does
	// not allow the traffic.
	DNSProblem string `json:"dnsProblem,omitempty"`
}

// ClientAddrs returns the addresses, ranges and prefixes that the client has in other clusters. It
// is empty if the client keeps its own address or stays in its cluster.
func (c *Cell) ClientAddrs() []string {
	var out []string
	for i := range c.Destinations {
		if c.Destinations[i].Allowed {
			out = append(out, c.Destinations[i].Sources...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ServiceAddrs returns the addresses that the client connects to.
func (c *Cell) ServiceAddrs() []netip.Addr {
	var out []netip.Addr
	for i := range c.Destinations {
		if c.Destinations[i].Allowed {
			out = append(out, c.Destinations[i].Requested...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// builder is the state of New.
type builder struct {
	Input
	fabric *fabric.Fabric
	access *access.Set
	out    *Matrix
}

// New returns the matrix of a fabric, which must not change during the call. It fails if the input
// names an unknown cluster or export.
func New(f *fabric.Fabric, in Input) (*Matrix, error) {
	if in.Position == nil {
		in.Position = func(string) string { return "" }
	}
	b := &builder{Input: in, fabric: f, out: &Matrix{Clusterset: f.Name, Exports: []Export{}},
		access: access.New(f, access.Options{PreferredLink: in.PreferredLink, Reports: in.Reports})}
	b.out.Clusters, b.out.MoreClusters = selectNames(in.Clusters, slices.Sorted(slices.Values(f.ClusterNames())), MaxClusters)
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
	shown, b.out.MoreExports = selectNames(in.Exports, ids, MaxExports)
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

// selectNames returns the named items, or all if none is named, but at most maxNames. It also
// returns the number of omitted items.
func selectNames(named, all []string, maxNames int) ([]string, int) {
	if len(named) > 0 {
		return named, len(all) - len(named)
	}
	shown := all[:min(len(all), maxNames)]
	return shown, len(all) - len(shown)
}

// rows returns the exports without their cells: the exports of the topology, and further exports
// that agents report.
func (b *builder) rows() []Export {
	var out []Export
	for i := range b.fabric.Exports {
		e := &b.fabric.Exports[i]
		row := Export{
			ID: e.ID(), Name: e.Name + "." + e.Namespace + ".svc." + b.fabric.Domain, Type: e.Type,
			Source: b.Position("exports[" + e.ID() + "]"), Affinity: e.Affinity, IPs: e.VIPs, Allow: e.Allow,
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

// reported adds the agents' reports about exports.
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
			index, known := byID[id]
			if !known {
				if !e.Dynamic {
					continue // its fabric differs from the topology's
				}
				index = len(rows)
				byID[id] = index
				rows = append(rows, Export{
					ID: id, Name: e.Name + "." + e.Namespace + ".svc." + b.fabric.Domain, Type: e.Type, Dynamic: true,
					Source: b.Position("dynamicExports"), Ports: e.Ports, Policy: e.Policy,
				})
			}
			for k := range e.Clusters {
				rows[index].mergeReport(s.Cluster, &e.Clusters[k])
			}
		}
	}
	return rows
}

// mergeReport adds an agent's report about a part. Agents of the exporting cluster take precedence;
// among others, yes takes precedence over no, and no over unknown.
func (e *Export) mergeReport(reporter string, report *status.ExportCluster) {
	i := slices.IndexFunc(e.Parts, func(p Part) bool { return p.Cluster == report.Name })
	if i < 0 {
		if !e.Dynamic {
			return
		}
		i = len(e.Parts)
		e.Parts = append(e.Parts, Part{Cluster: report.Name, Ready: status.Unknown})
	}
	p := &e.Parts[i]
	rank := []string{status.Unknown, "no", "yes"}
	if reporter == report.Name && len(report.Backends) >= len(p.Endpoints) {
		p.Ready, p.Endpoints = report.Ready, report.Backends
	} else if len(p.Endpoints) == 0 && slices.Index(rank, report.Ready) > slices.Index(rank, p.Ready) {
		p.Ready = report.Ready
	}
}

// fill adds the cells of a row.
func (b *builder) fill(row *Export) error {
	slices.SortFunc(row.Parts, func(a, b Part) int { return strings.Compare(a.Cluster, b.Cluster) })
	for _, name := range b.out.Clusters {
		a, err := b.access.Explain(access.Source{Cluster: name}, access.Target{Export: row.ID})
		if err != nil {
			return fmt.Errorf("explain %s from %s: %w", row.ID, name, err)
		}
		c := Cell{Cluster: name, Allowed: a.Allowed, SameCluster: row.exportedBy(name), Reason: a.Reason, Path: a.DecidedBy,
			Source: b.Position(a.DecidedBy), Destinations: a.Destinations}
		if a.Live != nil {
			if c.LiveVerdict = a.Live.Verdict; c.LiveVerdict != access.Delivered {
				c.LiveReasons = a.LiveReasons()
			}
		}
		if a.Allowed {
			c.DNSProblem = b.unresolved(name, row.ID)
		}
		for i := range c.Destinations {
			c.Destinations[i].Live = nil
		}
		row.Cells = append(row.Cells, c)
	}
	return nil
}

// unresolved returns why the name of an export is not resolved in a cluster. It is empty if the
// name is resolved, or if no agent reports it.
func (b *builder) unresolved(cluster, id string) string {
	if b.Reports == nil {
		return ""
	}
	if reason := b.Reports.Unresolved[cluster]; reason != "" {
		return reason
	}
	agents, withoutDNS, known := 0, 0, 0
	for i := range b.Reports.Agents {
		s := &b.Reports.Agents[i]
		if s.Cluster != cluster || s.Digest == "" { // it has no fabric yet
			continue
		}
		agents++
		if s.DNSUnavailable {
			withoutDNS++
		}
		if slices.ContainsFunc(s.Exports, func(e status.Export) bool { return e.Namespace+"/"+e.Name == id }) {
			known++
		}
	}
	switch {
	case agents > 0 && withoutDNS == agents:
		return "no agent of " + cluster + " answers names of " + b.fabric.Domain
	case agents > 0 && known == 0:
		return "no agent of " + cluster + " knows this export"
	}
	return ""
}

func (e *Export) exportedBy(cluster string) bool {
	return slices.ContainsFunc(e.Parts, func(p Part) bool { return p.Cluster == cluster })
}
