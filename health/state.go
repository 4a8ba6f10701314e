package health

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/status"
)

// State is what a cluster's API reports about Hawser.
type State struct {
	Cluster    string    `json:"cluster"`
	Context    string    `json:"context"`
	Error      string    `json:"error,omitempty"` // the reason why the rest is unknown
	At         time.Time `json:"at"`              // of the read
	Clusterset string    `json:"clusterset,omitempty"`
	Applied    string    `json:"applied,omitempty"`   // digest of the fabric that hawser apply wrote last
	Delivered  string    `json:"delivered,omitempty"` // digest of the fabric in the API
	Image      string    `json:"image,omitempty"`     // of the agents
	Nodes      []Node    `json:"nodes"`
	Pods       int64     `json:"pods"` // agents that should run
	Running    int64     `json:"running"`
	// Outdated counts agents that do not run the newest version of their DaemonSet.
	Outdated int64 `json:"outdated,omitempty"`
	Stopped  []Pod `json:"stopped,omitempty"` // agents that do not run
	// NotReady are agents that run and fail the readiness probe of the kubelet.
	NotReady []Pod     `json:"notReady,omitempty"`
	Exports  []Export  `json:"exports"`
	Gateways []Gateway `json:"gateways,omitempty"` // on a fixed node
	// DNSProblem is why pods may not resolve names of the clusterset, and how to fix it.
	DNSProblem string `json:"dnsProblem,omitempty"`
}

// Unresponsive returns the pod of a node's agent if the agent fails the kubelet's readiness probe,
// but its report says ready. The report is then old: the process hangs, or has just started. The
// node's kubelet measures the time, so clocks of two machines are not compared.
func (s *State) Unresponsive(n *Node) (Pod, bool) {
	i := slices.IndexFunc(s.NotReady, func(p Pod) bool { return p.Node == n.Name })
	if i < 0 || n.NodeNotReady != "" || n.Ready != "True" {
		return Pod{}, false
	}
	return s.NotReady[i], true
}

// Node is the report of one agent in its HawserNode, with the state of its Node object.
type Node struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Role    string `json:"role"`              // gateway | worker
	Gateway string `json:"gateway,omitempty"` // whose holder it is, if labels select the node
	Version string `json:"version,omitempty"`
	Fabric  string `json:"fabric,omitempty"` // digest
	LinksUp int64  `json:"linksUp"`
	Links   int64  `json:"links"`
	Ready   string `json:"ready"` // True | False | Unknown
	Reason  string `json:"reason,omitempty"`
	Drained bool   `json:"drained,omitempty"`
	// NodeNetwork counts the paths to other nodes of the cluster; nil with nodeNetwork: tunnel.
	NodeNetwork *NodePaths `json:"nodeNetwork,omitempty"`
	// Problems are the problems that the agent reports, errors first.
	Problems []status.Problem `json:"problems,omitempty"`
	// Changed is when the agent's condition Ready changed last.
	Changed time.Time `json:"changed,omitzero"`
	// NodeNotReady describes the Node object if it is not ready, such as "NotReady since
	// 10:41:12Z". The report is then old. Empty = ready, or not readable.
	NodeNotReady string `json:"nodeNotReady,omitempty"`
	// LinksDown are the remote gateways of links that are not up, as CLUSTER/GATEWAY. A known
	// reason follows in parentheses.
	LinksDown []string `json:"linksDown,omitempty"`
	// Endpoints are the addresses at which remote gateways are reached, by CLUSTER/GATEWAY.
	Endpoints map[string][]netip.Addr `json:"endpoints,omitempty"`
	// UpSince is the time when the oldest connected link to a remote gateway came up, by
	// CLUSTER/GATEWAY.
	UpSince map[string]time.Time `json:"upSince,omitempty"`
}

// NodePaths counts the paths from a node to gateways of its cluster, or from a gateway to other
// nodes.
type NodePaths struct {
	Direct int64  `json:"direct"`
	VXLAN  int64  `json:"vxlan"`
	Reason string `json:"reason,omitempty"` // why the first path that is not direct needs VXLAN
}

// FirstProblem returns the text of the agent's first problem; empty if it has none.
func (n Node) FirstProblem() string {
	if len(n.Problems) == 0 {
		return ""
	}
	return n.Problems[0].Text
}

// Gateway is a gateway of a cluster with the addresses at which others should reach it.
type Gateway struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Endpoints are the static addresses in the fabric. It is empty for a gateway that also has
	// names or discovered endpoints.
	Endpoints []netip.Addr `json:"endpoints,omitempty"`
	NodeAddrs []netip.Addr `json:"nodeAddrs,omitempty"` // of the Node object; empty if not readable
}

// Pod is a pod of an agent that does not run or is not ready.
type Pod struct {
	Name   string `json:"name"`
	Node   string `json:"node"`
	Reason string `json:"reason"` // such as "ErrImagePull hawser-agent:v9.9.9", "since 2026-11-27T10:41:12Z"
}

// Export is a ServiceExport of a cluster, or its ServiceImport of the same name.
type Export struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Exported   bool        `json:"exported"` // by this cluster
	Conditions []Condition `json:"conditions,omitempty"`
	Type       string      `json:"type,omitempty"` // of the ServiceImport
	IPs        []string    `json:"ips,omitempty"`
	Clusters   []string    `json:"clusters,omitempty"` // that export it
}

// Condition is one condition of a ServiceExport.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Code returns the problem code of a condition that needs attention. Agents report the same problem
// with this code. It is empty for other conditions, such as hawser.dev/Supported: a Service may
// keep an unsupported part, such as an SCTP port.
func (c Condition) Code() string {
	switch {
	case c.Type == mcs.Valid && c.Status != "True":
		return status.ExportInvalid
	case c.Type == mcs.Ready && c.Status != "True":
		return status.ExportNotReady
	case c.Type == mcs.Conflict && c.Status != "False":
		return CodeExportConflict
	}
	return ""
}

// Text returns the condition on one line.
func (c Condition) Text() string {
	return strings.TrimSuffix(c.Type+"="+c.Status+" "+c.Reason+": "+c.Message, ": ")
}
