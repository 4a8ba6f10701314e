// Package packettrace joins the observations of nodes in several clusters into traces of packets
// from client to server. It formats traces as text and as swimlanes. It is pure.
package packettrace

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
)

// Outcomes, from the worst to the best.
const (
	Dropped         = "dropped"    // by a node, which reports where
	Lost            = "lost"       // a node sent them to another node, and no node observed them
	Loop            = "looped"     // a node observed them a second time
	WrongReturnPath = "asymmetric" // the reply bypassed the node that had translated the request
	Unanswered      = "unanswered" // arrived over TCP, and no reply was observed
	Unclear         = "unclear"    // sent to another node, whose observation is unknown
	Arrived         = "arrived"
)

// NodeTrace is the observation of one node. Start is its start by the caller's clock.
type NodeTrace struct {
	status.Diagnosis
	Start time.Time
}

// Trace is the path of similar packets from a client to a server or back.
type Trace struct {
	First   *Hop   `json:"first"`
	Outcome string `json:"outcome"` // the worst outcome of its packets
	// Answered reports whether a reply of the server was observed.
	Answered bool `json:"answered,omitempty"`
	// Answer is the last hop of the reply; nil without a reply, or if it arrived.
	Answer *Hop `json:"answer,omitempty"`
	// Resets is the number of packets by which the client refused a reply on a wrong return
	// path.
	Resets int `json:"resets,omitempty"`
}

// Hop is a node's observation of the packets of a trace.
type Hop struct {
	Cluster string           `json:"cluster"`
	Node    string           `json:"node"`
	Flow    status.FlowTrace `json:"flow"`
	// Finding is why the packets ended here; nil if they did not.
	Finding *status.Finding `json:"finding,omitempty"`
	// Outcome is the packets' outcome on the last node that observed them.
	Outcome string `json:"outcome,omitempty"`
	// Bypassed is the node (cluster/node) that translated the request, if the reply ended here
	// and bypassed that node. It is empty for other outcomes.
	Bypassed string `json:"bypassed,omitempty"`
	Next     []*Hop `json:"next,omitempty"` // next nodes that observed the packets
	// Policies are phrases that name the NetworkPolicies that may have dropped the packets
	// here, if known.
	Policies []string `json:"policies,omitempty"`

	trace       *NodeTrace
	hasPrevious bool // another node observed them before
}

// maxHops is the maximum number of hops of a trace; a longer trace is a loop.
const maxHops = 16

// maxTransitTime is the maximum time of a packet between two nodes.
const maxTransitTime = time.Second

// Correlate returns the traces: failed ones first, then those with the most packets.
func Correlate(nodeTraces []NodeTrace) []Trace {
	j := newJoiner(nodeTraces)
	var traces []Trace
	for _, s := range j.hops {
		if !s.hasPrevious {
			traces = append(traces, j.trace(s))
		}
	}
	for _, s := range j.hops { // packets in a loop have no first hop
		if !j.inTrace[s] {
			traces = append(traces, j.trace(s))
		}
	}
	traces = j.joinReplies(traces)
	slices.SortStableFunc(traces, func(a, b Trace) int {
		return cmp.Or(cmp.Compare(severity(a), severity(b)), cmp.Compare(b.First.Flow.Packets, a.First.Flow.Packets))
	})
	return traces
}

func outcomes() []string {
	return []string{Dropped, Lost, Loop, WrongReturnPath, Unanswered, Unclear, Arrived}
}

func severity(t Trace) int { return slices.Index(outcomes(), t.Outcome) }

func worseOutcome(a, b string) string {
	all := outcomes()
	if b == "" || a != "" && slices.Index(all, a) <= slices.Index(all, b) {
		return a
	}
	return b
}

type joiner struct {
	nodeTraces []NodeTrace
	hops       []*Hop
	inTrace    map[*Hop]bool          // hops that are in a trace
	byIngress  map[status.Ends][]*Hop // hops by their packets that arrived over a link
	nodes      map[string]int         // number of queried nodes, by cluster
	gateways   map[string]bool        // queried gateways, by cluster/gateway
	sampled    bool                   // a node did not follow all packets
	from, to   time.Time              // time in which all nodes observed packets
}

func newJoiner(nodeTraces []NodeTrace) *joiner {
	j := &joiner{
		nodeTraces: nodeTraces, inTrace: map[*Hop]bool{}, byIngress: map[status.Ends][]*Hop{}, nodes: map[string]int{}, gateways: map[string]bool{},
	}
	for i := range nodeTraces {
		s := &nodeTraces[i]
		ended := s.Start.Add(seconds(s.Seconds))
		if i == 0 || s.Start.After(j.from) {
			j.from = s.Start
		}
		if i == 0 || ended.Before(j.to) {
			j.to = ended
		}
		j.sampled = j.sampled || s.Sampled
		j.nodes[s.Cluster]++
		if s.Gateway != "" {
			j.gateways[s.Cluster+"/"+s.Gateway] = true
		}
		for _, flow := range s.Flows {
			hop := &Hop{Cluster: s.Cluster, Node: s.Node, Flow: flow, Finding: findingOf(s.Findings, flow), trace: s}
			j.hops = append(j.hops, hop)
			if flow.In != "" {
				j.byIngress[flow.Ingress] = append(j.byIngress[flow.Ingress], hop)
			}
		}
	}
	for _, s := range j.hops {
		for _, next := range j.nextHops(s) {
			next.hasPrevious = true
		}
	}
	return j
}

func findingOf(findings []status.Finding, flow status.FlowTrace) *status.Finding {
	for i := range findings {
		f := &findings[i]
		if flow.Kind != "" && f.Kind == flow.Kind && f.Location == flow.Location {
			return f
		}
	}
	return nil
}

// isHawserDevice reports whether an interface leads to other nodes.
func isHawserDevice(name string) bool { return strings.HasPrefix(name, desired.DevicePrefix) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// nextHops returns the next nodes' observations of the packets that a hop sent. Transit packets
// reach later clusters unchanged too; those nodes are not next hops.
func (j *joiner) nextHops(s *Hop) []*Hop {
	all := j.observationsAfter(s)
	if len(all) < 2 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(far *Hop) bool {
		return slices.ContainsFunc(all, func(near *Hop) bool {
			return near != far && slices.Contains(j.observationsAfter(near), far) && !slices.Contains(j.observationsAfter(far), near)
		})
	})
}

// observationsAfter returns the other nodes' observations of the packets that a hop sent.
func (j *joiner) observationsAfter(s *Hop) []*Hop {
	if s.Flow.Passed == 0 || s.Flow.Out == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(j.byIngress[s.Flow.Egress]), func(next *Hop) bool { return next.trace == s.trace || !isNextHop(s, next) })
}

// isNextHop reports whether packets of hop s may have reached hop next. Within a cluster they use
// the same device or any network, between clusters a tunnel.
func isNextHop(s, next *Hop) bool {
	out, in := s.Flow.Out, next.Flow.In
	nodeNetwork := strings.HasPrefix(out, desired.NodeDevicePrefix)
	switch {
	case !isHawserDevice(out):
		return s.Cluster == next.Cluster && !isHawserDevice(in)
	case nodeNetwork || s.Cluster == next.Cluster:
		return nodeNetwork && s.Cluster == next.Cluster && out == in
	}
	return isHawserDevice(in) && !strings.HasPrefix(in, desired.NodeDevicePrefix)
}

func (j *joiner) trace(s *Hop) Trace {
	first, worst := j.walk(s, nil)
	return Trace{First: first, Outcome: worst}
}

// walk follows packets from a hop and returns their worst outcome. A hop may be in several traces;
// each trace has its own copy.
func (j *joiner) walk(from *Hop, visited []*Hop) (*Hop, string) {
	j.inTrace[from] = true
	visited = append(slices.Clone(visited), from)
	s, worst := *from, ""
	for _, next := range j.nextHops(from) {
		if slices.Contains(visited, next) || len(visited) == maxHops {
			s.Outcome = Loop
			continue
		}
		nextHop, outcome := j.walk(next, visited)
		s.Next, worst = append(s.Next, nextHop), worseOutcome(worst, outcome)
	}
	if len(s.Next) == 0 && s.Outcome == "" {
		s.Outcome = j.endOutcome(from)
	}
	return &s, worseOutcome(worst, s.Outcome)
}

// endOutcome returns the outcome of packets that no other node observed.
func (j *joiner) endOutcome(s *Hop) string {
	switch {
	case s.Flow.Passed == 0:
		return Dropped
	case !isHawserDevice(s.Flow.Out):
		return Arrived
	case j.allNodesAnswered(s) && !j.sampled && j.nodesFollow(s) && j.allNodesObserved(s):
		return Lost
	}
	return Unclear
}

// allNodesAnswered reports whether all nodes responded to which a hop may have sent packets. A
// worker sends to the gateways of its cluster, a gateway to all nodes of its cluster and to the
// gateways behind its links.
func (j *joiner) allNodesAnswered(s *Hop) bool {
	switch {
	case !strings.HasPrefix(s.Flow.Out, desired.NodeDevicePrefix):
		return !slices.ContainsFunc(s.trace.Remotes, func(g string) bool { return !j.gateways[g] })
	case s.trace.Gateway == "":
		return !slices.ContainsFunc(s.trace.SiblingGateways, func(g string) bool { return !j.gateways[s.Cluster+"/"+g] })
	}
	return j.nodes[s.Cluster] >= s.trace.Nodes
}

// nodesFollow reports whether all nodes to which a hop may have sent packets follow such packets.
func (j *joiner) nodesFollow(s *Hop) bool {
	nodeNetwork := strings.HasPrefix(s.Flow.Out, desired.NodeDevicePrefix)
	for _, other := range j.nodeTraces {
		if (other.Cluster == s.Cluster) == nodeNetwork && !follows(other.Prefixes, s.Flow.Egress) {
			return false
		}
	}
	return true
}

func follows(prefixes []netip.Prefix, ends status.Ends) bool {
	return len(prefixes) == 0 || slices.ContainsFunc([]string{ends.From, ends.To}, func(end string) bool {
		addr := address(end)
		return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// address returns the address of an end; zero if the end is not an address.
func address(end string) netip.Addr {
	if addrPort, err := netip.ParseAddrPort(end); err == nil {
		return addrPort.Addr()
	}
	addr, _ := netip.ParseAddr(end)
	return addr
}

// allNodesObserved reports whether all nodes were observing when a packet arrived at a hop, and for
// maxTransitTime afterwards.
func (j *joiner) allNodesObserved(s *Hop) bool {
	return slices.ContainsFunc([]float64{s.Flow.First, s.Flow.Middle, s.Flow.Last}, func(at float64) bool {
		lastSeen := s.trace.Start.Add(seconds(at))
		return !lastSeen.Before(j.from) && !lastSeen.After(j.to.Add(-maxTransitTime))
	})
}
