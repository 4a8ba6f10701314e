package packettrace

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/status"
)

// Report is the result of hawser diagnose. It is the JSON output, and the source of the text, the
// drawings and the page.
type Report struct {
	Traces      []Trace              `json:"traces"` // failed ones first, then those with the most packets
	Nodes       []status.Diagnosis   `json:"nodes"`  // sorted by cluster and node
	Unreachable []status.Unreachable `json:"unreachable,omitempty"`
}

// NewReport joins the observations of the nodes.
func NewReport(nodes []NodeTrace, unreachable []status.Unreachable) *Report {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b NodeTrace) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	r := &Report{Traces: append([]Trace{}, Correlate(nodes)...), Nodes: []status.Diagnosis{}, Unreachable: unreachable}
	for i := range nodes {
		r.Nodes = append(r.Nodes, nodes[i].Diagnosis)
	}
	return r
}

// Failed reports whether some packets certainly did not arrive.
func (r *Report) Failed() bool { return slices.ContainsFunc(r.Traces, Trace.failed) }

func (t Trace) failed() bool { return t.Outcome != Arrived && t.Outcome != Unclear }

// Packets returns the number of followed packets.
func (r *Report) Packets() int {
	packets, _ := r.totals()
	return packets
}

// totals returns the number of followed packets and the longest duration in seconds.
func (r *Report) totals() (packets int, longest float64) {
	for i := range r.Nodes {
		packets, longest = packets+r.Nodes[i].Packets, max(longest, r.Nodes[i].Seconds)
	}
	return packets, longest
}

// PolicyHops returns the hops where a NetworkPolicy may have dropped packets: a rule of another
// program or no known rule dropped them, or the server did not reply.
func (r *Report) PolicyHops() []*Hop {
	var out []*Hop
	var visit func(s *Hop, unanswered bool)
	visit = func(s *Hop, unanswered bool) {
		if f := s.Finding; f != nil && (f.Kind == status.FindingForeign || f.Kind == status.FindingLost) || f == nil && unanswered && len(s.Next) == 0 {
			out = append(out, s)
		}
		for _, next := range s.Next {
			visit(next, unanswered)
		}
	}
	for i := range r.Traces {
		if t := &r.Traces[i]; t.failed() {
			visit(t.First, t.Outcome == Unanswered)
			if t.Answer != nil {
				visit(t.Answer, false)
			}
		}
	}
	return out
}

// Sources returns the source addresses of a hop's packets, before and after translation.
func (s *Hop) Sources() []netip.Addr { return addresses(s.Flow.Ingress.From, s.Flow.Egress.From) }

// Destinations returns the destination addresses of a hop's packets, before and after translation.
func (s *Hop) Destinations() []netip.Addr { return addresses(s.Flow.Ingress.To, s.Flow.Egress.To) }

func addresses(ends ...string) []netip.Addr {
	var out []netip.Addr
	for _, end := range ends {
		if a := address(end); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
