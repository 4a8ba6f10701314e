package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
)

// Problem is a line of the headline. The page links Subject to the object of that name. All texts
// come from clusters, so the page shows them as plain text.
type Problem struct {
	Severity string `json:"severity"`          // error | warning
	Subject  string `json:"subject,omitempty"` // g2/g2-gw
	Text     string `json:"text"`              // does not answer
	// Since is the start of the problem; nil if unknown.
	Since       *time.Time `json:"since,omitempty"`
	Consequence string     `json:"note,omitempty"` // consequence: gateway b is down
	// Detail is the reason, as the agent or the connection reports it.
	Detail  string     `json:"detail,omitempty"`
	Cluster string     `json:"cluster,omitempty"`
	Node    string     `json:"node,omitempty"`
	Link    *[2]string `json:"link,omitempty"`
}

// manySilent is the number of silent agents above which a cluster has one common problem.
const manySilent = 3

// maxProblems bounds the headline. The page shows a few problems, and the findings have all.
const maxProblems = 20

// headline returns the problems, the worst first: silent agents, gateways without a link, links
// that are down for another reason, and problems that the clusters' APIs or agents report.
func headline(m *clustermap.Map, r Reports, problems []health.Problem) []Problem {
	if !r.HasAgents {
		return []Problem{}
	}
	out := silentProblems(m, r)
	for i := range m.Clusters {
		c := &m.Clusters[i]
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if g.State == clustermap.Down && slices.ContainsFunc(r.Agents, func(s status.Status) bool { return s.Cluster == c.Name && s.Gateway == g.Name }) {
				out = append(out, Problem{Severity: Error, Subject: c.Name + "/" + g.Name, Text: "no link of this gateway is up", Cluster: c.Name})
			}
		}
	}
	for i := range m.Links {
		l := &m.Links[i]
		if l.Explained || l.State != clustermap.Down && l.State != clustermap.Degraded {
			continue
		}
		if len(out) >= maxProblems {
			break
		}
		p := Problem{Severity: Error, Subject: "link " + l.Between[0] + " - " + l.Between[1], Text: "is down", Link: &l.Between}
		if l.State == clustermap.Degraded {
			p.Severity, p.Text = Warning, "is down between some gateways, traffic uses others"
		}
		p.Detail = brokenReason(l.Between, r.Agents)
		out = append(out, p)
	}
	seen := map[string]bool{} // several agents may report the same text
	for _, found := range problems {
		// The map already shows unreachable clusters and links that are down.
		if found.Severity == health.Info || found.Code == health.CodeUnreachable || found.Code == health.CodeLinksDown || seen[found.Text] {
			continue
		}
		seen[found.Text] = true
		p := headlineProblem(found)
		// The API often has the reason for a silent agent: its node is off, its image is
		// missing.
		if i := slices.IndexFunc(out, func(o Problem) bool {
			return p.Node != "" && o.Cluster == p.Cluster && o.Node == p.Node && o.Text != ""
		}); i >= 0 {
			out[i].Consequence, out[i].Detail = joinTexts(p.Consequence, out[i].Consequence), joinTexts(out[i].Detail, p.Detail)
			continue
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b Problem) int { return strings.Compare(a.Severity, b.Severity) })
	return out[:min(len(out), maxProblems)]
}

// headlineProblem converts a problem to a line of the headline.
func headlineProblem(p health.Problem) Problem {
	out := Problem{Severity: severityOf(p), Subject: subjectOf(p), Consequence: p.Text, Cluster: p.Cluster, Node: p.Node}
	if p.Next != "" {
		out.Detail = "next: " + p.Next
	}
	return out
}

// severityOf returns the severity of a problem on the page, which has only two.
func severityOf(p health.Problem) string {
	if p.Severity == health.Error {
		return Error
	}
	return Warning
}

// subjectOf returns the node, cluster or clusterset of a problem.
func subjectOf(p health.Problem) string {
	if p.Node == "" {
		return cmp.Or(p.Cluster, "clusterset")
	}
	return p.Cluster + "/" + p.Node
}

func joinTexts(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// silentProblems returns the problems of agents that do not respond.
func silentProblems(m *clustermap.Map, r Reports) []Problem {
	if len(r.Agents) == 0 && len(r.Unreachable) > 0 {
		all := Problem{Severity: Error, Subject: "No agent answers", Consequence: "the states of clusters and links are unknown", Detail: r.Unreachable[0].Error}
		for i := range r.Unreachable {
			if at := r.Unreachable[i].LastAnswer; at != nil && (all.Since == nil || at.After(*all.Since)) {
				all.Since = at
			}
		}
		return []Problem{all}
	}
	unreachable := map[string]bool{} // clusters without a connection
	count := map[string]int{}
	for i := range r.Unreachable {
		u := &r.Unreachable[i]
		unreachable[u.Cluster] = unreachable[u.Cluster] || u.Cluster != "" && u.Agent == u.Cluster
		count[u.Cluster]++
	}
	out := []Problem{}
	for i := range r.Unreachable {
		u := &r.Unreachable[i]
		p := Problem{Severity: Error, Since: u.LastAnswer, Detail: u.Error, Cluster: u.Cluster, Node: u.Node}
		switch {
		case u.Cluster != "" && u.Agent == u.Cluster:
			p.Subject, p.Text, p.Consequence = "cluster "+u.Cluster, "does not answer", "its API server cannot be reached"
		case unreachable[u.Cluster]:
			continue
		case u.Cluster != "" && count[u.Cluster] > manySilent:
			p.Subject, p.Text, p.Node = "cluster "+u.Cluster, fmt.Sprintf("%d of its agents do not answer", count[u.Cluster]), ""
			unreachable[u.Cluster] = true // only reported once
		default:
			p.Subject, p.Text, p.Consequence = agentName(u), "does not answer", gatewayNote(m, r, u)
		}
		out = append(out, p)
	}
	return out
}

// agentName returns the name of an agent for users: its node, or its address.
func agentName(u *status.Unreachable) string {
	switch {
	case u.Node == "":
		return u.Agent
	case u.Cluster == "":
		return u.Node
	}
	return u.Cluster + "/" + u.Node
}

// gatewayNote returns the effect of a silent agent on the gateway of its node.
func gatewayNote(m *clustermap.Map, r Reports, u *status.Unreachable) string {
	for i := range m.Clusters {
		c := &m.Clusters[i]
		for j := range c.Gateways {
			g := &c.Gateways[j]
			if !isAgentOf(u, r, c.Name, g.Name, g.Node) {
				continue
			}
			switch g.State {
			case clustermap.Down:
				return "gateway " + g.Name + " is down"
			case clustermap.Silent:
				return "gateway " + g.Name + " may still forward traffic"
			}
		}
	}
	return ""
}

// withCluster returns the agents with missing clusters filled in, by the nodes of gateways.
func withCluster(f *fabric.Fabric, list []status.Unreachable) []status.Unreachable {
	out := append([]status.Unreachable{}, list...)
	for i := range out {
		for j := 0; out[i].Cluster == "" && out[i].Node != "" && j < len(f.Clusters); j++ {
			if f.Clusters[j].GatewayOn(out[i].Node) != nil {
				out[i].Cluster = f.Clusters[j].Name
			}
		}
	}
	return out
}

// isAgentOf reports whether an unreachable agent runs on the node of a gateway.
func isAgentOf(u *status.Unreachable, r Reports, cluster, gateway, node string) bool {
	if u.Cluster != "" && u.Cluster != cluster {
		return false
	}
	if u.Node == "" {
		return u.Agent == cluster+"/"+gateway
	}
	return u.Node == node || slices.ContainsFunc(r.Old, func(s status.Status) bool { return s.Cluster == cluster && s.Node == u.Node && s.Gateway == gateway })
}

// silentGateways returns the gateways (cluster/gateway) whose agents do not respond.
func silentGateways(f *fabric.Fabric, r Reports) map[string]bool {
	out := map[string]bool{}
	for i := range r.Unreachable {
		u := &r.Unreachable[i]
		for j := range f.Clusters {
			c := &f.Clusters[j]
			for k := range c.Gateways {
				g := &c.Gateways[k]
				if u.Cluster == c.Name && u.Agent == u.Cluster || isAgentOf(u, r, c.Name, g.Name, g.Node) {
					out[c.Name+"/"+g.Name] = true
				}
			}
		}
	}
	return out
}

// brokenReason returns the first pair of gateways of a link that is not connected, with the reason.
func brokenReason(between [2]string, agents []status.Status) string {
	for i := range agents {
		for j := range agents[i].Connections {
			c := &agents[i].Connections[j]
			if c.Status == status.Connected || fabric.SortedPair(agents[i].Cluster, c.RemoteCluster) != between {
				continue
			}
			text := fmt.Sprintf("%s/%s - %s/%s", agents[i].Cluster, c.Gateway, c.RemoteCluster, c.RemoteGateway)
			if c.Reason != "" {
				text += ": " + c.Reason
			}
			return text
		}
	}
	return ""
}

// summary returns a text about the agents that respond and the links that are up.
func summary(m *clustermap.Map, r Reports) string {
	if !r.HasAgents {
		return ""
	}
	up := 0
	for i := range m.Links {
		if m.Links[i].State == clustermap.Up {
			up++
		}
	}
	text := fmt.Sprintf("%d of %d agents answer", len(r.Agents), len(r.Agents)+len(r.Unreachable))
	if !m.MeshImplied {
		text += fmt.Sprintf(", %d of %d links are up", up, len(m.Links))
	}
	return text
}
