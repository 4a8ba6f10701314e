// Package webreport is the report on a clusterset as one page: its map, who reaches what,
// what was found, which versions run, and what hawser verify proved and when. It is pure.
package webreport

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
	"hawser.dev/hawser/internal/listing"
	"hawser.dev/hawser/internal/webpage"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/matrix"
)

// Report is what is known of a clusterset at a time.
type Report struct {
	Clusterset string    `json:"clusterset"`
	Made       time.Time `json:"made"`
	Version    string    `json:"version"` // of the hawser that made it
	Topology   string    `json:"topology,omitempty"`
	// Asked says that agents were asked; without, the report tells what the topology says.
	Asked    bool            `json:"asked"`
	Map      *clustermap.Map `json:"map"`
	Matrix   *matrix.Matrix  `json:"matrix"`
	Findings []Finding       `json:"findings"`
	Agents   []Agent         `json:"agents"`
	Verified *Certificate    `json:"verified,omitempty"` // nil = nothing was verified
}

// Severities of findings.
const (
	Error   = "error"
	Warning = "warning"
)

// Finding is something that a person should know.
type Finding struct {
	By       string `json:"by"`       // validate | agents | verify
	Severity string `json:"severity"` // error | warning
	Place    string `json:"place"`    // file:line:column, or cluster/node
	Text     string `json:"text"`
	Hint     string `json:"hint,omitempty"`
}

// Agent is what runs on one node.
type Agent struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Gateway string `json:"gateway,omitempty"`
	Version string `json:"version"`
	Fabric  string `json:"fabric"` // digest of the one in force
	Ready   bool   `json:"ready"`
}

// Certificate is what hawser verify proved.
type Certificate struct {
	Began time.Time             `json:"began"`
	Ended time.Time             `json:"ended"`
	Nodes []status.Verification `json:"nodes"`
	// Silent are the agents that did not answer, with why.
	Silent []string `json:"silent,omitempty"`
	// SHA256 is that of Nodes as compact JSON, in hex: two certificates with the same
	// proved the same.
	SHA256 string `json:"sha256"`
}

// Certify gives the certificate of what nodes reached.
func Certify(began, ended time.Time, nodes []status.Verification, silent []string) (*Certificate, error) {
	raw, err := json.Marshal(nodes)
	if err != nil {
		return nil, fmt.Errorf("write what was verified: %w", err)
	}
	sum := sha256.Sum256(raw)
	return &Certificate{Began: began, Ended: ended, Nodes: nodes, Silent: silent, SHA256: hex.EncodeToString(sum[:])}, nil
}

// Hear takes what agents say of themselves: versions, and findings.
func (r *Report) Hear(agents []status.Status) {
	r.Asked = true
	for i := range agents {
		s := &agents[i]
		where := s.Cluster + "/" + s.Node
		r.Agents = append(r.Agents, Agent{Cluster: s.Cluster, Node: s.Node, Gateway: s.Gateway, Version: s.Version, Fabric: s.Digest, Ready: s.Ready})
		add := func(severity, text string) {
			r.Findings = append(r.Findings, Finding{By: "agents", Severity: severity, Place: where, Text: text})
		}
		for _, text := range s.LastPass.Failed {
			add(Error, text)
		}
		for _, text := range s.LastPass.Blocked {
			add(Warning, "waits: "+text)
		}
		for _, in := range s.Inputs {
			if !in.OK {
				add(Error, in.Name+": "+cmp.Or(in.Error, "it is not as it should be"))
			}
		}
		if s.Mute {
			add(Error, "names of the clusterset are not answered here")
		}
		for _, p := range s.Problems {
			add(Warning, p.Text)
		}
		for _, c := range s.Connections {
			if c.Status != status.Connected {
				add(Error, fmt.Sprintf("the link %s - %s/%s is %s: %s", c.Gateway, c.RemoteCluster, c.RemoteGateway, c.Status, cmp.Or(c.Why, "no probe was answered")))
			}
		}
	}
	slices.SortFunc(r.Agents, func(a, b Agent) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node)) })
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Place, b.Place))
	})
	r.Findings = slices.Compact(r.Findings)
}

// Prove takes a certificate, and what it says was not reached as findings.
func (r *Report) Prove(c *Certificate) {
	r.Verified = c
	for _, n := range c.Nodes {
		for _, v := range n.Results {
			if v.Error != "" {
				r.Findings = append(r.Findings, Finding{By: "verify", Severity: Error, Place: n.Cluster + "/" + n.Node,
					Text: v.Name + ": " + v.Error, Hint: "hawser diagnose --export " + v.Export})
			}
		}
	}
}

// Trouble reports whether a finding is an error.
func (r *Report) Trouble() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error })
}

// HTML gives the page.
func (r *Report) HTML() string {
	lead := fmt.Sprintf("Made %s by hawser %s", moment(r.Made), r.Version)
	if r.Topology != "" {
		lead += " from " + r.Topology
	}
	if !r.Asked {
		lead += ". No agent was asked: it says what the topology says"
	}
	sections := []webpage.Section{
		{ID: "map", Title: "Map", Body: webpage.Figure(r.Map.Drawing())},
		{ID: "matrix", Title: "Who reaches what", Body: r.matrix()},
		{ID: "findings", Title: "Findings", Body: r.findings()},
		{ID: "versions", Title: "Versions", Body: r.versions()},
		{ID: "verified", Title: "Verified", Body: r.verified()},
	}
	return webpage.Page("Clusterset "+r.Clusterset, lead+".", sections)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// matrix draws who reaches what: a row an export, a column a cluster.
func (r *Report) matrix() string {
	m := r.Matrix
	if len(m.Exports) == 0 {
		return webpage.Paragraph("faint", "There is no export.")
	}
	t := webpage.Table{Head: []string{"export", "exported by"}}
	for _, name := range m.Clusters {
		t.Head = append(t.Head, "from "+name)
	}
	for i := range m.Exports {
		e := &m.Exports[i]
		row := []webpage.Cell{{Text: e.ID, Small: described(e), About: e.Name}, {Text: parts(e), Small: strings.Join(listing.Texts(e.IPs), ", ")}}
		for j := range e.Cells {
			row = append(row, cellOf(&e.Cells[j]))
		}
		t.Rows = append(t.Rows, row)
	}
	out := t.String() + webpage.Paragraph("faint", "A cell says whether the pods of a cluster may reach the export, the line of the topology that decides it, "+
		"what they ask for, and as whom the other side sees them.")
	if m.MoreClusters > 0 || m.MoreExports > 0 {
		out += webpage.Paragraph("faint", "Left out: %d clusters and %d exports; hawser explain answers for each.", m.MoreClusters, m.MoreExports)
	}
	return out
}

func described(e *matrix.Export) string {
	parts := []string{strings.Join(e.Ports, " "), e.Type, e.Policy}
	if e.Affinity != "" {
		parts = append(parts, "affinity "+e.Affinity)
	}
	if e.Dynamic {
		parts = append(parts, "made in clusters")
	}
	return joined(append(parts, e.Source), ", ")
}

func parts(e *matrix.Export) string {
	out := make([]string, len(e.Parts))
	for i, p := range e.Parts {
		out[i] = p.Cluster
		switch {
		case len(p.Endpoints) > 0:
			out[i] += fmt.Sprintf(" (%d ready)", len(p.Endpoints))
			if len(p.Endpoints) >= status.MaxBackends {
				out[i] = fmt.Sprintf("%s (%d or more ready)", p.Cluster, len(p.Endpoints))
			}
		case p.Ready == "yes":
			out[i] += " (ready)"
		case p.Ready == "no":
			out[i] += " (none ready)"
		case p.Ready == status.Unknown:
			out[i] += " (not known)"
		}
	}
	return strings.Join(out, ", ")
}

func cellOf(c *matrix.Cell) webpage.Cell {
	out := webpage.Cell{Class: "no", Text: "no", About: c.Why}
	if !c.Allowed {
		out.Small = joined([]string{c.Why, c.Source}, "; ")
		return out
	}
	out.Class, out.Text = "yes", "yes"
	if c.SameCluster {
		out.Text = "yes, its own"
	}
	switch c.LiveVerdict {
	case "no":
		out.Class, out.Text = "no", "allowed, nothing arrives"
	case "unknown":
		out.Class, out.Text = "unsure", "allowed, not known to arrive"
	}
	asks := joined(listing.Texts(c.ServiceAddrs()), ", ")
	if asks != "" {
		asks = "asks " + asks
	}
	seen := ""
	if away := slices.ContainsFunc(c.Destinations, func(t access.Destination) bool { return t.Allowed && t.Cluster != c.Cluster }); away {
		seen = "seen as " + cmp.Or(strings.Join(c.ClientAddrs(), ", "), "its pods' own addresses")
	}
	out.Small = joined(append([]string{c.Source, asks, seen}, c.LiveWhy...), "; ")
	return out
}

func (r *Report) findings() string {
	if len(r.Findings) == 0 {
		return webpage.Paragraph("good", "Nothing was found.")
	}
	t := webpage.Table{Head: []string{"", "where", "what", "what to do", "by"}}
	for _, f := range r.Findings {
		class := "fair"
		if f.Severity == Error {
			class = "bad"
		}
		t.Rows = append(t.Rows, []webpage.Cell{{Text: f.Severity, Class: class}, {Text: f.Place, Class: "mono"}, {Text: f.Text}, {Text: f.Hint}, {Text: f.By}})
	}
	return t.String()
}

func (r *Report) versions() string {
	if len(r.Agents) == 0 {
		return webpage.Paragraph("faint", "No agent was asked.")
	}
	t := webpage.Table{Head: []string{"cluster", "node", "gateway", "version", "fabric", "ready"}}
	for _, a := range r.Agents {
		ready := webpage.Cell{Text: "yes", Class: "good"}
		if !a.Ready {
			ready = webpage.Cell{Text: "no", Class: "bad"}
		}
		t.Rows = append(t.Rows, append(webpage.Plain(a.Cluster, a.Node, a.Gateway, a.Version, a.Fabric), ready))
	}
	return t.String()
}

func (r *Report) verified() string {
	c := r.Verified
	if c == nil {
		return webpage.Paragraph("faint", "Nothing was verified: hawser report --verify has every agent connect to every export.")
	}
	t := webpage.Table{Head: []string{"node", "name", "export", "answered"}}
	reached, tried := 0, 0
	for _, n := range c.Nodes {
		for _, v := range n.Results {
			what := webpage.Cell{Text: strings.Join(v.Reached, ", "), Class: "yes", Small: fmt.Sprintf("%.1f ms", float64(v.Micros)/1000)}
			switch {
			case v.Skipped != "":
				what = webpage.Cell{Text: "not tried", Small: v.Skipped, Class: "unsure"}
			case v.Error != "":
				tried++
				what.Small, what.Class = v.Error, "no"
			default:
				tried++
				reached++
			}
			t.Rows = append(t.Rows, append(webpage.Plain(n.Cluster+"/"+n.Node, v.Name, v.Export), what))
		}
	}
	class := "good"
	if reached < tried || len(c.Silent) > 0 {
		class = "bad"
	}
	out := webpage.Paragraph(class, "From %s to %s %d of %d names answered, on %d nodes.", moment(c.Began), moment(c.Ended), reached, tried, len(c.Nodes))
	for _, s := range c.Silent {
		out += webpage.Paragraph("bad", "No answer: %s", s)
	}
	return out + t.String() + webpage.Paragraph("faint mono", "SHA-256 of what the nodes answered: %s", c.SHA256)
}

func joined(texts []string, by string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" }), by)
}
