// Package access computes which sources reach which targets in a clusterset, and why. An answer has
// the deciding line of the topology, the links, and the addresses on each side. With reports from
// agents, it also states whether traffic arrives now. Diff compares two clustersets.
//
// Only the reference model in schema/fabric/reach decides whether gateways forward a packet. This
// package queries the model, finds the topology path that decides the verdict, and compares it with
// the reports. Commands, plans and pages render its answers. It does no I/O.
package access

import (
	"net/netip"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Source is the client: a pod, or a process on a node.
type Source struct {
	Cluster   string     `json:"cluster"`
	Namespace string     `json:"namespace,omitempty"` // of the pod; empty = any
	Pod       string     `json:"pod,omitempty"`
	Node      bool       `json:"node,omitempty"` // a process in the host network of a node
	Addr      netip.Addr `json:"address,omitzero"`
}

// String returns the source in words, such as "pods of g1".
func (f Source) String() string {
	switch {
	case f.Node:
		return "processes on nodes of " + f.Cluster
	case f.Pod != "":
		return "pod " + f.Namespace + "/" + f.Pod + " of " + f.Cluster
	}
	return "pods of " + f.Cluster
}

// Target is the destination of a connection: an export or an address.
type Target struct {
	Export string `json:"export,omitempty"` // namespace/name
	// Cluster restricts an export to one cluster. With Addr, it is the cluster that owns the
	// address.
	Cluster string     `json:"cluster,omitempty"`
	Addr    netip.Addr `json:"address,omitzero"`
	// Port is a number, or the name of a port of an export. Empty means the export's first
	// port.
	Port     string `json:"port,omitempty"`
	Protocol string `json:"protocol"` // tcp | udp
}

// Answer describes how a source reaches a target, or why it does not.
type Answer struct {
	// Allowed reports whether the topology lets traffic through, assuming live links and ready
	// backends.
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"` // in one sentence
	// DecidedBy is the topology path that decides. It comes from the first destination with the
	// verdict of the answer, the source's own cluster first.
	DecidedBy string `json:"decidedBy,omitempty"`
	From      Source `json:"from"`
	To        Target `json:"to"`
	Name      string `json:"name,omitempty"` // DNS name of the export
	// Destinations has one element per cluster that may answer.
	Destinations []Destination `json:"destinations"`
	Lines        []Line        `json:"lines"` // relevant lines of the topology
	// Live is nil without reports from agents, or if the topology allows nothing that they
	// report on.
	Live *Live `json:"live,omitempty"`
}

// Reached reports whether the topology allows the traffic and, with reports from agents, it
// arrives.
func (a *Answer) Reached() bool {
	return a.Allowed && (a.Live == nil || a.Live.Verdict == Delivered)
}

// Summary returns the answer in one sentence, from Live if there are reports.
func (a *Answer) Summary() string {
	if a.Live != nil {
		return a.Live.Reason
	}
	return a.Reason
}

// Destination is a cluster that may answer, and the path to it.
type Destination struct {
	Cluster string `json:"cluster"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // if not allowed
	// DecidedBy is the topology path that admits the source or blocks its packets.
	DecidedBy string       `json:"decidedBy,omitempty"`
	Requested []netip.Addr `json:"requested,omitempty"` // destination addresses at the client
	Links     []Link       `json:"links,omitempty"`     // in order; none within a cluster
	// Translated are the destination addresses in the other cluster.
	Translated []netip.Addr `json:"translated,omitempty"`
	// Sources are the addresses, ranges and prefixes of the client in the other cluster. They
	// are empty if it keeps its own address.
	Sources []string `json:"sources,omitempty"`
	// Backend describes the owner of the address: pods of the export, one pod, or a ClusterIP.
	Backend string `json:"backend,omitempty"`
	// Live is nil without reports from agents, or if the topology does not allow it.
	Live *LiveDestination `json:"live,omitempty"`
}

// Link is a link between two clusters on a path.
type Link struct {
	From   string `json:"from"` // cluster, or cluster/gateway if the preferred link is known
	To     string `json:"to"`
	Driver string `json:"driver"`
	// NodeSelectors describes the nodes that may be the gateway, by cluster/gateway. It has
	// only gateways with a node selector.
	NodeSelectors map[string]string `json:"nodeSelectors,omitempty"`
}

// Line is a topology path with its meaning for an answer.
type Line struct {
	Path   string `json:"path"`
	Source string `json:"source,omitempty"` // file:line
	Text   string `json:"text"`
}

// PreferredLink returns the gateways of the link that a pair of clusters prefers.
type PreferredLink func(a, b string) (local, remote string, ok bool)

// Options are additional inputs of answers. Each is optional.
type Options struct {
	PreferredLink PreferredLink
	// Position returns file:line of a topology path, or "".
	Position func(path string) string
	Reports  *AgentReports
}

// AgentReports are the reports of the agents of a clusterset.
type AgentReports struct {
	Agents []status.Status
	// Unreachable has the errors of clusters without an answer.
	Unreachable map[string]string
	// Problems are the problems that the APIs of the clusters report.
	Problems []health.Problem
	// Unresolved has the reasons why pods of a cluster may not resolve names of the clusterset,
	// by cluster.
	Unresolved map[string]string
	// SourcePolicies name the NetworkPolicies that may drop packets of the source.
	SourcePolicies []string
	// DestinationPolicies name the NetworkPolicies that may drop packets to the destination, by
	// cluster.
	DestinationPolicies map[string][]string
}

// Set returns answers for one fabric. It is safe for concurrent use.
type Set struct {
	model *reach.Model
	graph *fabric.Graph
	Options
	reports *reportIndex // nil without reports
}

// New returns a Set for a fabric. The fabric and the reports must not change afterwards.
func New(f *fabric.Fabric, o Options) *Set {
	if o.PreferredLink == nil {
		o.PreferredLink = func(string, string) (string, string, bool) { return "", "", false }
	}
	if o.Position == nil {
		o.Position = func(string) string { return "" }
	}
	s := &Set{model: reach.New(f), graph: f.Graph(), Options: o}
	if o.Reports != nil {
		s.reports = newReportIndex(o.Reports)
	}
	return s
}

// WithReports returns a copy of s whose answers have live parts.
func (s *Set) WithReports(r AgentReports) *Set {
	out := *s
	out.Reports, out.reports = &r, newReportIndex(&r)
	return &out
}
