// Package packettrace joins what the nodes of several clusters saw of packets into their way
// from client to server, and tells where they ended. It is pure.
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
	Dropped    = "dropped"    // on a node, which says where
	Vanished   = "vanished"   // sent to another node by one, and seen on none
	Circling   = "circling"   // a node saw them again
	Astray     = "astray"     // the answer went past the node that had translated the question
	Unanswered = "unanswered" // got there, over TCP, and nothing came back
	Unclear    = "unclear"    // sent to another node, of which is not known what it saw
	Arrived    = "arrived"
)

// Seen is what one node saw, and when it began to look, by the clock of who asked.
type Seen struct {
	status.Diagnosis
	Begun time.Time
}

// Trip is the way of like packets, of a client to a server or back.
type Trip struct {
	First   *Step  `json:"first"`
	Outcome string `json:"outcome"` // the worst of where its packets got to
	// Answered says that something came back from the server.
	Answered bool `json:"answered,omitempty"`
	// Answer is what came back; nil = nothing did, or it got there.
	Answer *Step `json:"answer,omitempty"`
	// Resets are the packets by which the client refused an answer that went astray.
	Resets int `json:"resets,omitempty"`
}

// Step is the way of those packets through a node.
type Step struct {
	Cluster string         `json:"cluster"`
	Node    string         `json:"node"`
	Journey status.Journey `json:"journey"`
	// Finding is why they ended here; nil = they did not.
	Finding *status.Finding `json:"finding,omitempty"`
	// Outcome is what became of them, on the last node that saw them.
	Outcome string `json:"outcome,omitempty"`
	// Past is the node (cluster/node) through which an answer that ended here should
	// have come, as it had translated the question; empty = there is none.
	Past string  `json:"past,omitempty"`
	Next []*Step `json:"next,omitempty"` // where they were seen then

	seen  *Seen
	later bool // another node saw them before
}

// longest is how many nodes a way has at most; one that is longer goes round in circles.
const longest = 16

// settle is how long a packet may be under way between nodes.
const settle = time.Second

// Join finds the trips. What went wrong comes first, then what had the most packets.
func Join(seen []Seen) []Trip {
	j := newJoiner(seen)
	var trips []Trip
	for _, s := range j.steps {
		if !s.later {
			trips = append(trips, j.trip(s))
		}
	}
	for _, s := range j.steps { // packets that go round in circles begin nowhere
		if !j.taken[s] {
			trips = append(trips, j.trip(s))
		}
	}
	trips = j.answers(trips)
	slices.SortStableFunc(trips, func(a, b Trip) int {
		return cmp.Or(cmp.Compare(badness(a), badness(b)), cmp.Compare(b.First.Journey.Packets, a.First.Journey.Packets))
	})
	return trips
}

func outcomes() []string {
	return []string{Dropped, Vanished, Circling, Astray, Unanswered, Unclear, Arrived}
}

func badness(t Trip) int { return slices.Index(outcomes(), t.Outcome) }

func worse(a, b string) string {
	all := outcomes()
	if b == "" || a != "" && slices.Index(all, a) <= slices.Index(all, b) {
		return a
	}
	return b
}

type joiner struct {
	seen     []Seen
	steps    []*Step
	taken    map[*Step]bool          // are in a trip
	came     map[status.Ends][]*Step // over a link
	nodes    map[string]int          // that were asked, by cluster
	gateways map[string]bool         // that were asked, by cluster/gateway
	full     bool                    // some node did not follow all packets
	from, to time.Time               // when all nodes looked
}

func newJoiner(seen []Seen) *joiner {
	j := &joiner{
		seen: seen, taken: map[*Step]bool{}, came: map[status.Ends][]*Step{}, nodes: map[string]int{}, gateways: map[string]bool{},
	}
	for i := range seen {
		s := &seen[i]
		ended := s.Begun.Add(seconds(s.Seconds))
		if i == 0 || s.Begun.After(j.from) {
			j.from = s.Begun
		}
		if i == 0 || ended.Before(j.to) {
			j.to = ended
		}
		j.full = j.full || s.Full
		j.nodes[s.Cluster]++
		if s.Gateway != "" {
			j.gateways[s.Cluster+"/"+s.Gateway] = true
		}
		for _, journey := range s.Journeys {
			step := &Step{Cluster: s.Cluster, Node: s.Node, Journey: journey, Finding: findingOf(s.Findings, journey), seen: s}
			j.steps = append(j.steps, step)
			if journey.In != "" {
				j.came[journey.Came] = append(j.came[journey.Came], step)
			}
		}
	}
	for _, s := range j.steps {
		for _, next := range j.after(s) {
			next.later = true
		}
	}
	return j
}

func findingOf(all []status.Finding, j status.Journey) *status.Finding {
	for i := range all {
		if j.Kind != "" && all[i].Kind == j.Kind && all[i].Place == j.Place {
			return &all[i]
		}
	}
	return nil
}

// ours says that an interface leads to other nodes.
func ours(name string) bool { return strings.HasPrefix(name, desired.LinkPrefix) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// after gives what the next nodes saw of the packets that left one. What is passed on by
// a cluster comes unchanged to those behind it too: they are not the next.
func (j *joiner) after(s *Step) []*Step {
	all := j.behind(s)
	if len(all) < 2 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(far *Step) bool {
		return slices.ContainsFunc(all, func(near *Step) bool {
			return near != far && slices.Contains(j.behind(near), far) && !slices.Contains(j.behind(far), near)
		})
	})
}

// behind gives what other nodes saw of the packets that left one.
func (j *joiner) behind(s *Step) []*Step {
	if s.Journey.Passed == 0 || s.Journey.Out == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(j.came[s.Journey.Left]), func(next *Step) bool { return next.seen == s.seen || !joined(s, next) })
}

// joined says that what a step sent may have come to the other one: within a cluster
// over the same device or over anybody's network, between clusters over a tunnel.
func joined(s, next *Step) bool {
	out, in := s.Journey.Out, next.Journey.In
	inside := strings.HasPrefix(out, desired.NodePrefix)
	switch {
	case !ours(out):
		return s.Cluster == next.Cluster && !ours(in)
	case inside || s.Cluster == next.Cluster:
		return inside && s.Cluster == next.Cluster && out == in
	}
	return ours(in) && !strings.HasPrefix(in, desired.NodePrefix)
}

func (j *joiner) trip(s *Step) Trip {
	first, worst := j.walk(s, nil)
	return Trip{First: first, Outcome: worst}
}

// walk follows packets from a step on, and gives the worst of what became of them. A
// step may be in several ways: each has a copy.
func (j *joiner) walk(from *Step, way []*Step) (*Step, string) {
	j.taken[from] = true
	way = append(slices.Clone(way), from)
	s, worst := *from, ""
	for _, next := range j.after(from) {
		if slices.Contains(way, next) || len(way) == longest {
			s.Outcome = Circling
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

// end says what became of packets that no other node saw.
func (j *joiner) end(s *Step) string {
	switch {
	case s.Journey.Passed == 0:
		return Dropped
	case !ours(s.Journey.Out):
		return Arrived
	case j.asked(s) && !j.full && j.followed(s) && j.watched(s):
		return Vanished
	}
	return Unclear
}

// asked says that all nodes answered to which a step may have sent packets: from a worker
// to the gateways, from a gateway to all nodes of its cluster, and to those behind its links.
func (j *joiner) asked(s *Step) bool {
	switch {
	case !strings.HasPrefix(s.Journey.Out, desired.NodePrefix):
		return !slices.ContainsFunc(s.seen.Remotes, func(g string) bool { return !j.gateways[g] })
	case s.seen.Gateway == "":
		return !slices.ContainsFunc(s.seen.Mates, func(g string) bool { return !j.gateways[s.Cluster+"/"+g] })
	}
	return j.nodes[s.Cluster] >= s.seen.Nodes
}

// followed says that all nodes to which a step may have sent packets follow such ones.
func (j *joiner) followed(s *Step) bool {
	inside := strings.HasPrefix(s.Journey.Out, desired.NodePrefix)
	for _, other := range j.seen {
		if (other.Cluster == s.Cluster) == inside && !follows(other.Only, s.Journey.Left) {
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

// address gives that of an end; none when it is not one.
func address(end string) netip.Addr {
	if both, err := netip.ParseAddrPort(end); err == nil {
		return both.Addr()
	}
	addr, _ := netip.ParseAddr(end)
	return addr
}

// watched says that all nodes looked when some packet came to a step, and for long
// enough afterwards.
func (j *joiner) watched(s *Step) bool {
	return slices.ContainsFunc([]float64{s.Journey.First, s.Journey.Middle, s.Journey.Last}, func(at float64) bool {
		when := s.seen.Begun.Add(seconds(at))
		return !when.Before(j.from) && !when.After(j.to.Add(-settle))
	})
}
