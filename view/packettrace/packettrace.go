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

	seen  *NodeTrace
	later bool // another node observed them before
}

// longest is the maximum number of hops of a trace; a longer trace is a loop.
const longest = 16

// maxTransitTime is the maximum time of a packet between two nodes.
const maxTransitTime = time.Second

// Correlate returns the traces: failed ones first, then those with the most packets.
func Correlate(seen []NodeTrace) []Trace {
	j := newJoiner(seen)
	var traces []Trace
	for _, s := range j.hops {
		if !s.later {
			traces = append(traces, j.trace(s))
		}
	}
	for _, s := range j.hops { // packets in a loop have no first hop
		if !j.taken[s] {
			traces = append(traces, j.trace(s))
		}
	}
	traces = j.joinReplies(traces)
	slices.SortStableFunc(traces, func(a, b Trace) int {
		return cmp.Or(cmp.Compare(badness(a), badness(b)), cmp.Compare(b.First.Flow.Packets, a.First.Flow.Packets))
	})
	return traces
}

func outcomes() []string {
	return []string{Dropped, Lost, Loop, WrongReturnPath, Unanswered, Unclear, Arrived}
}

func badness(t Trace) int { return slices.Index(outcomes(), t.Outcome) }

func worse(a, b string) string {
	all := outcomes()
	if b == "" || a != "" && slices.Index(all, a) <= slices.Index(all, b) {
		return a
	}
	return b
}

type joiner struct {
	seen     []NodeTrace
	hops     []*Hop
	taken    map[*Hop]bool          // hops that are in a trace
	came     map[status.Ends][]*Hop // hops by their packets that arrived over a link
	nodes    map[string]int         // number of queried nodes, by cluster
	gateways map[string]bool        // queried gateways, by cluster/gateway
	full     bool                   // a node did not follow all packets
	from, to time.Time              // time in which all nodes observed packets
}

func newJoiner(seen []NodeTrace) *joiner {
	j := &joiner{
		seen: seen, taken: map[*Hop]bool{}, came: map[status.Ends][]*Hop{}, nodes: map[string]int{}, gateways: map[string]bool{},
	}
	for i := range seen {
		s := &seen[i]
		ended := s.Start.Add(seconds(s.Seconds))
		if i == 0 || s.Start.After(j.from) {
			j.from = s.Start
		}
		if i == 0 || ended.Before(j.to) {
			j.to = ended
		}
		j.full = j.full || s.Sampled
		j.nodes[s.Cluster]++
		if s.Gateway != "" {
			j.gateways[s.Cluster+"/"+s.Gateway] = true
		}
		for _, flow := range s.Flows {
			hop := &Hop{Cluster: s.Cluster, Node: s.Node, Flow: flow, Finding: findingOf(s.Findings, flow), seen: s}
			j.hops = append(j.hops, hop)
			if flow.In != "" {
				j.came[flow.Ingress] = append(j.came[flow.Ingress], hop)
			}
		}
	}
	for _, s := range j.hops {
		for _, next := range j.after(s) {
			next.later = true
		}
	}
	return j
}

func findingOf(all []status.Finding, j status.FlowTrace) *status.Finding {
	for i := range all {
		if j.Kind != "" && all[i].Kind == j.Kind && all[i].Location == j.Location {
			return &all[i]
		}
	}
	return nil
}

// isHawserDevice reports whether an interface leads to other nodes.
func isHawserDevice(name string) bool { return strings.HasPrefix(name, desired.DevicePrefix) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// after returns the next nodes' observations of the packets that a hop sent. Transit packets reach
// later clusters unchanged too; those nodes are not next hops.
func (j *joiner) after(s *Hop) []*Hop {
	all := j.behind(s)
	if len(all) < 2 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(far *Hop) bool {
		return slices.ContainsFunc(all, func(near *Hop) bool {
			return near != far && slices.Contains(j.behind(near), far) && !slices.Contains(j.behind(far), near)
		})
	})
}

// behind returns the other nodes' observations of the packets that a hop sent.
func (j *joiner) behind(s *Hop) []*Hop {
	if s.Flow.Passed == 0 || s.Flow.Out == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(j.came[s.Flow.Egress]), func(next *Hop) bool { return next.seen == s.seen || !joined(s, next) })
}

// joined reports whether packets of hop s may have reached hop next. Within a cluster they use the
// same device or any network, between clusters a tunnel.
func joined(s, next *Hop) bool {
	out, in := s.Flow.Out, next.Flow.In
	inside := strings.HasPrefix(out, desired.NodeDevicePrefix)
	switch {
	case !isHawserDevice(out):
		return s.Cluster == next.Cluster && !isHawserDevice(in)
	case inside || s.Cluster == next.Cluster:
		return inside && s.Cluster == next.Cluster && out == in
	}
	return isHawserDevice(in) && !strings.HasPrefix(in, desired.NodeDevicePrefix)
}

func (j *joiner) trace(s *Hop) Trace {
	first, worst := j.walk(s, nil)
	return Trace{First: first, Outcome: worst}
}

// walk follows packets from a hop and returns their worst outcome. A hop may be in several traces;
// each trace has its own copy.
func (j *joiner) walk(from *Hop, way []*Hop) (*Hop, string) {
	j.taken[from] = true
	way = append(slices.Clone(way), from)
	s, worst := *from, ""
	for _, next := range j.after(from) {
		if slices.Contains(way, next) || len(way) == longest {
			s.Outcome = Loop
			continue
		}
		then, outcome := j.walk(next, way)
		s.Next, worst = append(s.Next, then), worse(worst, outcome)
	}
	if len(s.Next) == 0 && s.Outcome == "" {
		s.Outcome = j.end(from)
	}
	return &s, worse(worst, s.Outcome)
}

// end returns the outcome of packets that no other node observed.
func (j *joiner) end(s *Hop) string {
	switch {
	case s.Flow.Passed == 0:
		return Dropped
	case !isHawserDevice(s.Flow.Out):
		return Arrived
	case j.allNodesAnswered(s) && !j.full && j.followed(s) && j.watched(s):
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
		return !slices.ContainsFunc(s.seen.Remotes, func(g string) bool { return !j.gateways[g] })
	case s.seen.Gateway == "":
		return !slices.ContainsFunc(s.seen.SiblingGateways, func(g string) bool { return !j.gateways[s.Cluster+"/"+g] })
	}
	return j.nodes[s.Cluster] >= s.seen.Nodes
}

// followed reports whether all nodes to which a hop may have sent packets follow such packets.
func (j *joiner) followed(s *Hop) bool {
	inside := strings.HasPrefix(s.Flow.Out, desired.NodeDevicePrefix)
	for _, other := range j.seen {
		if (other.Cluster == s.Cluster) == inside && !follows(other.Prefixes, s.Flow.Egress) {
			return false
		}
	}
	return true
}

func follows(only []netip.Prefix, ends status.Ends) bool {
	return len(only) == 0 || slices.ContainsFunc([]string{ends.From, ends.To}, func(end string) bool {
		addr := address(end)
		return slices.ContainsFunc(only, func(p netip.Prefix) bool { return p.Contains(addr) })
	})
}

// address returns the address of an end; zero if the end is not an address.
func address(end string) netip.Addr {
	if both, err := netip.ParseAddrPort(end); err == nil {
		return both.Addr()
	}
	addr, _ := netip.ParseAddr(end)
	return addr
}

// watched reports whether all nodes were observing when a packet arrived at a hop, and for
// maxTransitTime afterwards.
func (j *joiner) watched(s *Hop) bool {
	return slices.ContainsFunc([]float64{s.Flow.First, s.Flow.Middle, s.Flow.Last}, func(at float64) bool {
		when := s.seen.Start.Add(seconds(at))
		return !when.Before(j.from) && !when.After(j.to.Add(-maxTransitTime))
	})
}
