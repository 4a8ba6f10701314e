// Package health decides whether a clusterset works, from the state that the clusters' APIs or
// their agents report. It is the only place that decides this, and does no I/O.
package health

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/status"
)

// Severity is the severity of a problem.
type Severity string

const (
	// Error means that something does not work.
	Error Severity = "error"
	// Warning means that something works in part, or may soon stop.
	Warning Severity = "warning"
	// Unknown means that a report is missing.
	Unknown Severity = "unknown"
	// Info means that no action is needed.
	Info Severity = "info"
)

// Blocks reports whether a problem of this severity makes a change incomplete. A warning does not,
// because it may be permanent, such as for an export that is scaled to zero.
func (s Severity) Blocks() bool { return s == Error || s == Unknown }

// Problem codes that also appear in other reports.
const (
	CodeUnreachable = "cluster-unreachable"
	CodeLinksDown   = "links-down"

	CodeEndpointUnconfirmed = "endpoint-unconfirmed"
	CodeDNS                 = "dns"
	CodeFabricsDiffer       = "fabrics-differ"
	CodeExportConflict      = "export-conflict"
)

// Problem is one reason why a clusterset is not healthy.
type Problem struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // stable, kebab-case
	Cluster  string   `json:"cluster,omitempty"`
	Node     string   `json:"node,omitempty"`
	Export   string   `json:"export,omitempty"` // namespace/name
	Text     string   `json:"text"`             // the fault, lower case, no full stop
	Next     string   `json:"next,omitempty"`   // the next step, often a command

	rank int // causes before their effects
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Text
	switch {
	case p.Cluster != "" && p.Node != "":
		text = p.Cluster + "/" + p.Node + ": " + text
	case p.Cluster != "":
		text = p.Cluster + ": " + text
	}
	if p.Next != "" {
		text += "; next: " + p.Next
	}
	return text
}

// confirmTime is the minimum uptime of a link before an unconfirmed endpoint is a warning. A peer
// tries all endpoints within this time.
const confirmTime = time.Minute

// Ranks of problems. A problem may cause problems of higher ranks.
const (
	rankUnreachable = iota
	rankNode
	rankAgent
	rankInput
	rankEndpoint
	rankDNS
	rankLinks
	rankFabrics
	rankExport
	rankAgentExport
	rankWarning
	rankInfo
)

// Assess returns all problems of the clusters, causes before their effects. No problem means that
// all reports are good.
func Assess(states []State) []Problem {
	var out []Problem
	fabrics, catalog := map[string][]string{}, status.NewCatalog()
	for i := range states {
		s := &states[i]
		a := assessment{catalog: catalog, state: s}
		if s.Error != "" {
			a.add(Problem{Severity: Unknown, Code: CodeUnreachable, Text: s.Error, rank: rankUnreachable})
			out = append(out, a.problems...)
			continue
		}
		a.checkAgents()
		a.checkNodes()
		if s.DNSProblem != "" {
			a.add(Problem{Severity: Error, Code: CodeDNS, Text: s.DNSProblem, rank: rankDNS})
		}
		a.checkExports()
		for _, n := range s.Nodes {
			if n.NodeNotReady == "" && n.Fabric != "" && !slices.Contains(fabrics[n.Fabric], s.Cluster) {
				fabrics[n.Fabric] = append(fabrics[n.Fabric], s.Cluster)
			}
		}
		a.checkEndpoints(states)
		out = append(out, a.problems...)
	}
	if len(fabrics) > 1 {
		var parts []string
		for _, digest := range slices.Sorted(maps.Keys(fabrics)) {
			parts = append(parts, digest+" in "+strings.Join(fabrics[digest], ", "))
		}
		out = append(out, Problem{Severity: Error, Code: CodeFabricsDiffer, Text: "clusters have different fabrics: " + strings.Join(parts, "; "),
			Next: status.NextDeliver, rank: rankFabrics})
	}
	slices.SortStableFunc(out, func(a, b Problem) int { return cmp.Compare(a.rank, b.rank) })
	return out
}

// Healthy reports whether there are no problems; known is false if the state of a cluster is
// unknown.
func Healthy(problems []Problem) (healthy, known bool) {
	healthy, known = true, true
	for _, p := range problems {
		switch p.Severity {
		case Info:
		case Unknown:
			healthy, known = false, false
		default:
			return false, true
		}
	}
	return healthy, known
}

// assessment collects the problems of one cluster.
type assessment struct {
	catalog  status.Catalog
	state    *State
	problems []Problem
}

func (a *assessment) add(p Problem) {
	p.Cluster = a.state.Cluster
	a.problems = append(a.problems, p)
}

func (a *assessment) kubectl(format string, args ...any) string {
	return "kubectl --context " + cmp.Or(a.state.Context, a.state.Cluster) + " " + fmt.Sprintf(format, args...)
}

// checkAgents finds agents that do not run, hang, or have another version than their DaemonSet. It
// skips agents that report why they are not ready; see checkNodes.
func (a *assessment) checkAgents() {
	s := a.state
	accounted := int64(0)
	for _, n := range s.Nodes {
		if n.NodeNotReady == "" {
			continue
		}
		accounted++
		text := "the node is " + n.NodeNotReady
		if n.Role != "" {
			text += ", its agent (" + n.Role + ") does not run"
		}
		a.add(Problem{Severity: Error, Code: "node-not-ready", Node: n.Name, Text: text, Next: a.kubectl("describe node %s", n.Name), rank: rankNode})
	}
	for _, p := range s.Stopped {
		if slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Name == p.Node && n.NodeNotReady != "" }) {
			continue
		}
		accounted++
		a.add(Problem{Severity: Error, Code: "agent-stopped", Node: p.Node, Text: "the agent does not run: " + p.Reason,
			Next: a.kubectl("-n hawser-system describe pod %s", p.Name), rank: rankAgent})
	}
	for _, p := range s.NotReady {
		i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == p.Node })
		if i >= 0 && s.Nodes[i].NodeNotReady != "" {
			continue
		}
		accounted++
		text := "the agent has failed the kubelet's readiness probe " + p.Reason
		if i < 0 {
			text += ", and has not reported"
		} else if _, unresponsive := s.Unresponsive(&s.Nodes[i]); unresponsive {
			text += ", but its last report says ready: it hangs, is starting or cannot write its HawserNode"
		} else {
			continue
		}
		a.add(Problem{Severity: Error, Code: "agent-unresponsive", Node: p.Node, Text: text, Next: a.kubectl("-n hawser-system describe pod %s", p.Name), rank: rankAgent})
	}
	if missing := s.Pods - s.Running; missing > accounted {
		a.add(Problem{Severity: Error, Code: "agents-missing", Text: fmt.Sprintf("%d of %d agents run", s.Running, s.Pods),
			Next: a.kubectl("-n hawser-system get pods -o wide"), rank: rankAgent})
	}
	if s.Outdated > 0 && int64(len(s.Stopped)) < s.Outdated {
		a.add(Problem{Severity: Error, Code: "rollout", Text: fmt.Sprintf("%d of %d agents wait for the rollout of the newest DaemonSet", s.Outdated, s.Pods),
			Next: a.kubectl("-n hawser-system rollout status daemonset"), rank: rankAgent})
	}
	switch {
	case len(s.Nodes) > 0:
	case s.Pods == 0:
		a.add(Problem{Severity: Unknown, Code: "not-installed", Text: "no agent has reported: Hawser is not installed", Next: "hawser bootstrap", rank: rankAgent})
	default:
		a.add(Problem{Severity: Unknown, Code: "no-reports", Text: "no agent has reported: there is no HawserNode",
			Next: a.kubectl("-n hawser-system get daemonsets,pods"), rank: rankAgent})
	}
}

// checkNodes finds problems in the reports of agents. Reports of nodes that are off, and of agents
// that hang, are old.
func (a *assessment) checkNodes() {
	for _, n := range a.state.Nodes {
		if _, unresponsive := a.state.Unresponsive(&n); unresponsive || n.NodeNotReady != "" {
			continue
		}
		for _, p := range n.Problems {
			a.addAgentProblem(n.Name, p)
		}
		if n.Ready != "True" && !slices.ContainsFunc(n.Problems, func(p status.Problem) bool { return p.Severity == status.Error }) {
			a.add(Problem{Severity: Error, Code: "agent-not-ready", Node: n.Name, Text: "the agent is not ready: " + cmp.Or(n.Reason, "it reports no reason"),
				Next: "hawser show all --cluster " + a.state.Cluster, rank: rankInput})
		}
		if n.Drained {
			a.add(Problem{Severity: Info, Code: "drained", Node: n.Name, Text: "the gateway is drained", Next: "hawser-agent undrain on " + n.Name, rank: rankInfo})
		}
		if n.LinksUp < n.Links {
			text := fmt.Sprintf("%d of %d links are up", n.LinksUp, n.Links)
			if len(n.LinksDown) > 0 {
				text += ", not to " + strings.Join(n.LinksDown[:min(len(n.LinksDown), 3)], ", ")
				if remaining := len(n.LinksDown) - 3; remaining > 0 {
					text += fmt.Sprintf(" and %d more", remaining)
				}
			}
			a.add(Problem{Severity: Error, Code: CodeLinksDown, Node: n.Name, Text: text,
				Next: "hawser show connections --cluster " + a.state.Cluster, rank: rankLinks})
		}
	}
}

// addAgentProblem adds a problem that an agent reports. It adds a problem of all nodes only once.
// It skips problems of ServiceExports if the state has their conditions.
func (a *assessment) addAgentProblem(node string, p status.Problem) {
	switch p.Code {
	case status.ExportInvalid, status.ExportNotReady:
		if len(a.state.Exports) > 0 {
			return
		}
	case status.ServiceMissing, status.ServiceType:
		if a.inConditions(p.Text) {
			return
		}
	}
	problem := Problem{Severity: Severity(p.Severity), Code: p.Code, Node: node, Text: p.Text, Next: p.Next, rank: rankInput}
	shared := a.catalog.Code(p.Code).Shared
	if shared {
		problem.Node, problem.rank = "", rankAgentExport
	}
	switch p.Severity {
	case status.Warning:
		problem.rank = rankWarning
	case status.Info:
		problem.rank = rankInfo
	}
	if shared && slices.ContainsFunc(a.problems, func(have Problem) bool { return have.Code == problem.Code && have.Text == problem.Text }) {
		return
	}
	a.add(problem)
}

// inConditions reports whether the conditions of ServiceExports have all texts that
// status.Catalog.Summarize joined to a problem.
func (a *assessment) inConditions(text string) bool {
	for _, message := range strings.Split(text, "; ") {
		matches := func(c Condition) bool { return c.Message == message }
		if !slices.ContainsFunc(a.state.Exports, func(e Export) bool { return slices.ContainsFunc(e.Conditions, matches) }) {
			return false
		}
	}
	return true
}

// checkEndpoints finds gateways whose static endpoints are all unconfirmed. An endpoint is
// confirmed if the gateway's node has the address, or if another cluster reaches the gateway there.
// A link may still be up, because WireGuard follows the source address of packets. It cannot be set
// up again after a restart of both ends. The result is unknown until a link to the gateway has been
// up for confirmTime.
func (a *assessment) checkEndpoints(states []State) {
	for _, g := range a.state.Gateways {
		if len(g.Endpoints) == 0 || len(g.NodeAddrs) == 0 || slices.ContainsFunc(g.Endpoints, func(e netip.Addr) bool { return slices.Contains(g.NodeAddrs, e) }) {
			continue
		}
		remote, confirmed, severity := a.state.Cluster+"/"+g.Name, false, Unknown
		for i := range states {
			for _, n := range states[i].Nodes {
				if since := n.UpSince[remote]; n.NodeNotReady == "" && !since.IsZero() && states[i].At.Sub(since) >= confirmTime {
					severity = Warning
				}
				confirmed = confirmed || slices.ContainsFunc(n.Endpoints[remote], func(addr netip.Addr) bool { return slices.Contains(g.Endpoints, addr) })
			}
		}
		if !confirmed {
			a.add(Problem{Severity: severity, Code: CodeEndpointUnconfirmed, Node: g.Node,
				Text: fmt.Sprintf("no cluster reaches gateway %s at its endpoints %s, and node %s has other addresses (%s)", g.Name,
					humanize.Join(g.Endpoints, ", "), g.Node, humanize.Join(g.NodeAddrs, ", ")),
				Next: "hawser show connections --cluster " + a.state.Cluster + ", then correct endpoints of the gateway in the topology or the port forwarding", rank: rankEndpoint})
		}
	}
}

// checkExports finds ServiceExports with conditions that need attention.
func (a *assessment) checkExports() {
	for _, e := range a.state.Exports {
		id := e.Namespace + "/" + e.Name
		invalid := slices.ContainsFunc(e.Conditions, func(c Condition) bool { return c.Code() == status.ExportInvalid })
		for _, c := range e.Conditions {
			code := c.Code()
			// An export that is not valid is not ready either.
			if code == "" || invalid && code == status.ExportNotReady {
				continue
			}
			next := a.kubectl("-n %s get service,endpointslices", e.Namespace)
			switch {
			case c.Type == mcs.Valid && c.Status == "Unknown":
				next = status.NextDeliver
			case c.Reason == mcs.NotAllowed:
				next = "change the topology, or " + a.kubectl("-n %s delete serviceexport %s", e.Namespace, e.Name)
			}
			a.add(Problem{Severity: Error, Code: code, Export: id, Text: "export " + id + ": " + c.Text(), Next: next, rank: rankExport})
		}
	}
}
