package packettrace

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
)

// maxArrived is the maximum number of listed traces that arrived.
const maxArrived = 20

// Text returns the text form of hawser diagnose.
func (r *Report) Text() string {
	packets, longest := r.totals()
	var sampled []string
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Sampled {
			sampled = append(sampled, n.Cluster+"/"+n.Node)
		}
	}
	var out strings.Builder
	nodes := humanize.Plural(len(r.Nodes), "node")
	problems := func() {
		for _, s := range r.Nodes {
			for _, text := range s.Problems {
				_, _ = fmt.Fprintf(&out, "%s/%s: %s\n", s.Cluster, s.Node, text)
			}
		}
	}
	if packets == 0 {
		_, _ = fmt.Fprintf(&out, "no packet of the clusterset on %s in %.0f s: make a request meanwhile\n", nodes, longest)
		problems()
		return out.String()
	}
	_, _ = fmt.Fprintf(&out, "%s of the clusterset followed on %s in %.0f s\n", humanize.Plural(packets, "packet"), nodes, longest)
	if len(sampled) > 0 {
		_, _ = fmt.Fprintf(&out, "more came than are followed on %s: --export or --address leaves out what else there is\n", strings.Join(sampled, ", "))
	}
	problems()
	// If all packets arrived, the trace did not find the problem.
	if slices.ContainsFunc(r.Traces, func(t Trace) bool { return t.Outcome != Arrived }) {
		for _, s := range r.Nodes {
			if s.ReversePathDrops > 0 {
				_, _ = fmt.Fprintf(&out, "%s/%s: %s\n", s.Cluster, s.Node, status.FilteredText(s.ReversePathDrops))
			}
		}
	}
	arrived := 0
	for _, t := range r.Traces {
		if t.Outcome == Arrived {
			if arrived++; arrived == 1 {
				out.WriteString("\n") // one line each, after the failed ones
			}
			if arrived <= maxArrived {
				var path []string
				last := t.First
				for s := t.First; s != nil; {
					path, last = append(path, s.Cluster+"/"+s.Node), s
					if s = nil; len(last.Next) > 0 {
						s = last.Next[0]
					}
				}
				text := "arrived at " + last.Flow.Egress.To + " over " + strings.Join(path, ", ")
				if t.Answered {
					text += ", answered"
				}
				_, _ = fmt.Fprintf(&out, "%s, %s: %s\n", t.First.Flow.Ingress, humanize.Plural(t.First.Flow.Packets, "packet"), text)
			}
			continue
		}
		_, _ = fmt.Fprintf(&out, "\n%s, %s: %s\n", t.First.Flow.Ingress, humanize.Plural(t.First.Flow.Packets, "packet"), t.Outcome)
		writeHop(&out, t.First, "  ")
		if t.Outcome == Unanswered {
			out.WriteString("    nothing came back from there\n    to do: see that something listens there, and that the pod's policies admit the client; " +
				"what nftables does not show, such as eBPF programs of the CNI, may drop it too\n")
		}
		if t.Answer != nil {
			_, _ = fmt.Fprintf(&out, "  the answer, %s:\n", humanize.Plural(t.Answer.Flow.Packets, "packet"))
			writeHop(&out, t.Answer, "  ")
		}
		if t.Resets > 0 {
			_, _ = fmt.Fprintf(&out, "    the client refused it with %s (TCP resets)\n", humanize.Plural(t.Resets, "packet"))
		}
	}
	if arrived > maxArrived {
		_, _ = fmt.Fprintf(&out, "and %d more that arrived\n", arrived-maxArrived)
	}
	return out.String()
}

// writeHop writes a hop and the hops after it.
func writeHop(out *strings.Builder, s *Hop, margin string) {
	j := s.Flow
	var parts []string
	if j.In != "" {
		parts = append(parts, "in "+j.In)
	}
	if j.Out != "" {
		parts = append(parts, "out "+j.Out)
	}
	if j.Egress != j.Ingress {
		parts = append(parts, "as "+j.Egress.String())
	}
	_, _ = fmt.Fprintf(out, "%s%s/%s: %s, %s\n", margin, s.Cluster, s.Node, humanize.Plural(j.Packets, "packet"), strings.Join(parts, ", "))
	if reason, advice := endText(s); reason != "" {
		_, _ = fmt.Fprintf(out, "%s  %s\n", margin, reason)
		if advice != "" {
			_, _ = fmt.Fprintf(out, "%s  to do: %s\n", margin, advice)
		}
	}
	for _, policy := range s.Policies {
		_, _ = fmt.Fprintf(out, "%s  %s\n", margin, policy)
	}
	for _, next := range s.Next {
		writeHop(out, next, margin)
	}
}

// endText returns why packets were not observed after a hop, and the next step; empty if they were.
func endText(s *Hop) (reason, advice string) {
	switch s.Outcome {
	case Dropped:
		if s.Finding == nil {
			return "ended here", "see hawser-agent diagnose on the node"
		}
		return "ended at " + s.Finding.Location + ": " + s.Finding.Text, s.Finding.Next
	case Lost:
		return "sent over " + s.Flow.Out + ", and seen on no other node", lostBetween(s.Flow)
	case Loop:
		return "sent over " + s.Flow.Out + " to a node that had it before: it goes round in circles",
			"hawser show paths lists the path to each cluster, and hawser-agent status on these nodes shows which fabric they follow"
	case WrongReturnPath:
		return fmt.Sprintf("the answer did not come back through %s, which translated the question: %s/%s sent it out of %s, and the client did not ask %s",
				s.Bypassed, s.Cluster, s.Node, s.Flow.Out, s.Flow.Egress.From),
			fmt.Sprintf("find the program that marks packets from %[3]s on %[1]s/%[2]s: rule 7289 matches Hawser's mark (nft list ruleset, ip rule); "+
				"hawser-agent plan there lists missing rules of Hawser", s.Cluster, s.Node, s.Flow.In)
	case Unclear:
		return "sent over " + s.Flow.Out + "; no trace of the next node: it was not queried, did not reply, or does not trace all packets", ""
	}
	return "", ""
}

func lostBetween(j status.FlowTrace) string {
	if strings.HasPrefix(j.Out, desired.NodeDevicePrefix) {
		return fmt.Sprintf("let UDP %d through between the nodes of this cluster, or look for an address that two nodes have", desired.VXLANPort)
	}
	return "hawser show connections lists the links between the gateways, with loss and path MTU; a firewall between them may drop the tunnel"
}
