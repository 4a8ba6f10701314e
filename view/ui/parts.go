package ui

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/svg"
	peerhealth "hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/matrix"
	"hawser.dev/hawser/view/packettrace"
	"hawser.dev/hawser/view/swimlane"
)

// Severities of findings.
const (
	Error   = "error"
	Warning = "warning"
)

// Finding is a problem that the page reports to users.
type Finding struct {
	By       string `json:"by"`       // validate | agents | verify
	Severity string `json:"severity"` // error | warning
	Position string `json:"position"` // file:line:column, or cluster/node
	Text     string `json:"text"`
	Hint     string `json:"hint,omitempty"`
}

// Version is the software that runs on one node.
type Version struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Gateway string `json:"gateway,omitempty"`
	Version string `json:"version"`
	Fabric  string `json:"fabric"` // digest of its current fabric
	Ready   bool   `json:"ready"`
}

// Verification is the result of hawser verify with its time.
type Verification struct {
	StartedAt   time.Time             `json:"startedAt"`
	Ended       time.Time             `json:"ended"`
	Nodes       []status.Verification `json:"nodes"`
	Unreachable []status.Unreachable  `json:"unreachable,omitempty"`
	// SHA256 is the digest of Nodes as compact JSON, in hex: equal results have equal digests.
	SHA256 string `json:"sha256"`
}

// NewVerification returns the verification of the nodes' results.
func NewVerification(start, ended time.Time, nodes []status.Verification, unreachable []status.Unreachable) (*Verification, error) {
	raw, err := json.Marshal(nodes)
	if err != nil {
		return nil, fmt.Errorf("write verification: %w", err)
	}
	sum := sha256.Sum256(raw)
	return &Verification{StartedAt: start.UTC(), Ended: ended.UTC(), Nodes: nodes, Unreachable: unreachable, SHA256: hex.EncodeToString(sum[:])}, nil
}

// findingsPart is the answer of GET /api/findings.
type findingsPart struct {
	Findings []Finding     `json:"findings"` // errors first
	Versions []Version     `json:"versions"` // by cluster and node
	Verified *Verification `json:"verified,omitempty"`
}

func (p *Snapshot) findings() findingsPart {
	out := findingsPart{Findings: append([]Finding{}, p.set.Findings...), Versions: []Version{}, Verified: p.verified}
	add := func(by, severity, place, text, hint string) {
		out.Findings = append(out.Findings, Finding{By: by, Severity: severity, Position: place, Text: text, Hint: hint})
	}
	for i := range p.head.Unreachable {
		u := &p.head.Unreachable[i]
		text := "does not answer: " + u.Error
		if u.LastAnswer != nil {
			text = "does not answer since " + u.LastAnswer.UTC().Format(time.RFC3339) + ": " + u.Error
		}
		add("agents", Error, agentName(u), text, "")
	}
	for i := range p.agents {
		s := &p.agents[i]
		out.Versions = append(out.Versions, Version{Cluster: s.Cluster, Node: s.Node, Gateway: s.Gateway, Version: s.Version, Fabric: s.Digest, Ready: s.Ready})
	}
	for _, found := range p.problems {
		if found.Code != health.CodeUnreachable { // its agents are unreachable too
			add("agents", severityOf(found), subjectOf(found), found.Text, found.Next)
		}
	}
	if p.verified != nil {
		for _, n := range p.verified.Nodes {
			for _, v := range n.Results {
				if v.Error != "" {
					add("verify", Error, n.Cluster+"/"+n.Node, v.Name+": "+v.Error, "hawser diagnose --export "+v.Export)
				}
			}
		}
	}
	slices.SortFunc(out.Versions, func(a, b Version) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node)) })
	slices.SortStableFunc(out.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Position, b.Position))
	})
	out.Findings = slices.Compact(out.Findings)
	return out
}

// HasErrors reports whether a finding is an error.
func (p *Snapshot) HasErrors() bool {
	return slices.ContainsFunc(p.findings().Findings, func(f Finding) bool { return f.Severity == Error })
}

// matrix returns who can reach which export, for the named clusters and exports; for all if none is
// named.
func (p *Snapshot) matrix(clusters, exports []string) (*matrix.Matrix, error) {
	in := matrix.Input{Position: p.set.PositionOf, Clusters: clusters, Exports: exports}
	if table := p.links(); table != nil {
		in.PreferredLink = func(a, b string) (string, string, bool) {
			first, ok := table.First(a, b)
			return first.Local, first.Remote, ok
		}
	}
	if p.head.Live && p.head.LiveCluster == "" { // the reports of one cluster's agents are not enough
		in.Reports = &access.AgentReports{Agents: p.agents, Unreachable: map[string]string{}}
		for _, u := range p.head.Unreachable {
			if name, _, _ := strings.Cut(u.Agent, "/"); name != "" {
				in.Reports.Unreachable[name] = u.Error
			}
		}
	}
	return matrix.New(p.set.Fabric, in)
}

// maxTable is the maximum number of clusters for which the preferred gateways of each pair are
// computed.
const maxTable = 300

// links returns the preferred link of each pair of clusters; nil if there are too many clusters.
func (p *Snapshot) links() *peerhealth.Preferences {
	if len(p.set.Fabric.Clusters) > maxTable {
		return nil
	}
	return peerhealth.NewPreferences(p.set.Fabric, nil)
}

// pathView is the path from one cluster to another.
type pathView struct {
	To       string   `json:"to"`
	Through  []string `json:"transit,omitempty"` // transit clusters
	Link     string   `json:"link,omitempty"`    // g1/a-g2/b
	Rank     string   `json:"rank,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	LastMove string   `json:"lastMove,omitempty"`
	// Reported reports whether an agent reported the path. Otherwise it is the path while all
	// links are up.
	Reported bool `json:"reported"`
}

// paths returns the paths from a cluster of the fabric to all other clusters, sorted by name.
func (p *Snapshot) paths(name string, table *peerhealth.Preferences) []pathView {
	reported := map[string]status.Path{}
	for i := range p.agents {
		for _, path := range p.agents[i].Paths {
			if p.agents[i].Cluster == name {
				reported[path.Cluster] = path
			}
		}
	}
	paths := []pathView{}
	for to, hops := range p.set.Fabric.Graph().Paths(name, nil) {
		out := pathView{To: to, Through: hops[:len(hops)-1]}
		if path, ok := reported[to]; ok {
			out.Through, out.Link, out.Rank, out.Reason, out.Reported = path.Transit, path.Link, path.Rank, path.Reason, true
			if path.LastMove != nil {
				out.LastMove = path.LastMove.At.UTC().Format(time.RFC3339) + " from " + path.LastMove.From + ": " + path.LastMove.Cause
			}
		} else if table != nil {
			if first, ok := table.First(name, hops[0]); ok {
				out.Link = name + "/" + first.Local + "-" + hops[0] + "/" + first.Remote
			}
		}
		paths = append(paths, out)
	}
	slices.SortFunc(paths, func(a, b pathView) int { return strings.Compare(a.To, b.To) })
	return paths
}

// tracesPart is the response of POST /api/diagnose: the traces and a drawing of each.
type tracesPart struct {
	*packettrace.Report
	Drawings []*svg.Drawing `json:"drawings"`
}

// maxDrawings is the maximum number of traces with a drawing.
const maxDrawings = 40

func drawTraces(r *packettrace.Report) *tracesPart {
	if r == nil {
		return nil
	}
	out := &tracesPart{Report: r, Drawings: []*svg.Drawing{}}
	for _, t := range r.Traces[:min(len(r.Traces), maxDrawings)] {
		out.Drawings = append(out.Drawings, swimlane.Draw("", t.Paths()))
	}
	return out
}

// Limits of a report file. Above them the page names the command that returns the rest.
const (
	maxPathClusters = 64     // clusters whose paths to each other are in a file
	maxConnections  = 20_000 // connections of all agents
)

// document is a complete snapshot: the JSON form of hawser report.
type document struct {
	fullUpdate
	Matrix *matrix.Matrix `json:"matrix"`
	findingsPart
	Nodes  []status.Status       `json:"nodes"`
	Paths  map[string][]pathView `json:"paths"` // by cluster
	Traces *tracesPart           `json:"traces,omitempty"`
}

// MarshalJSON encodes the snapshot with all its parts.
func (p *Snapshot) MarshalJSON() ([]byte, error) {
	d := document{fullUpdate: p.full(), findingsPart: p.findings(), Nodes: append([]status.Status{}, p.agents...), Paths: map[string][]pathView{}, Traces: drawTraces(p.traces)}
	var err error
	if d.Matrix, err = p.matrix(nil, nil); err != nil {
		return nil, err
	}
	if clusters := p.set.Fabric.Clusters; len(clusters) <= maxPathClusters {
		table := p.links()
		for i := range clusters {
			d.Paths[clusters[i].Name] = p.paths(clusters[i].Name, table)
		}
	}
	connections := 0
	for i := range d.Nodes {
		connections += len(d.Nodes[i].Connections)
	}
	if connections > maxConnections {
		for i := range d.Nodes {
			d.Nodes[i].Connections, d.Nodes[i].Paths = nil, nil
		}
	}
	return json.Marshal(d)
}
