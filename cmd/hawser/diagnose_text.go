package main

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/listing"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/packettrace"
)

// mostArrived are listed of the trips without trouble.
const mostArrived = 20

// tripText gives the text form of `hawser diagnose`.
func tripText(trips []packettrace.Trip, seen []packettrace.Seen) string {
	packets, full, long := 0, []string(nil), 0.0
	for _, s := range seen {
		packets, long = packets+s.Packets, max(long, s.Seconds)
		if s.Full {
			full = append(full, s.Cluster+"/"+s.Node)
		}
	}
	var out strings.Builder
	nodes := listing.Count(len(seen), "node")
	problems := func() {
		for _, s := range seen {
			for _, text := range s.Problems {
				_, _ = fmt.Fprintf(&out, "%s/%s: %s\n", s.Cluster, s.Node, text)
			}
		}
	}
	if packets == 0 {
		_, _ = fmt.Fprintf(&out, "no packet of the clusterset on %s in %.0f s: make a request meanwhile\n", nodes, long)
		problems()
		return out.String()
	}
	_, _ = fmt.Fprintf(&out, "%s of the clusterset followed on %s in %.0f s\n", listing.Count(packets, "packet"), nodes, long)
	if len(full) > 0 {
		_, _ = fmt.Fprintf(&out, "more came than are followed on %s: --export or --address leaves out what else there is\n", strings.Join(full, ", "))
	}
	problems()
	// Where all got there it was not what was looked for.
	if slices.ContainsFunc(trips, func(t packettrace.Trip) bool { return t.Outcome != packettrace.Arrived }) {
		for _, s := range seen {
			if s.Filtered > 0 {
				_, _ = fmt.Fprintf(&out, "%s/%s: %s\n", s.Cluster, s.Node, status.FilteredText(s.Filtered))
			}
		}
	}
	arrived := 0
	for _, t := range trips {
		if t.Outcome == packettrace.Arrived {
			if arrived++; arrived == 1 {
				out.WriteString("\n") // one line each, behind what has trouble
			}
			if arrived <= mostArrived {
				var way []string
				last := t.First
				for s := t.First; s != nil; {
					way, last = append(way, s.Cluster+"/"+s.Node), s
					if s = nil; len(last.Next) > 0 {
						s = last.Next[0]
					}
				}
				text := "arrived at " + last.Journey.Left.To + " over " + strings.Join(way, ", ")
				if t.Answered {
					text += ", answered"
				}
				_, _ = fmt.Fprintf(&out, "%s, %s: %s\n", t.First.Journey.Came, listing.Count(t.First.Journey.Packets, "packet"), text)
			}
			continue
		}
		_, _ = fmt.Fprintf(&out, "\n%s, %s: %s\n", t.First.Journey.Came, listing.Count(t.First.Journey.Packets, "packet"), t.Outcome)
		stepText(&out, t.First, "  ")
		if t.Outcome == packettrace.Unanswered {
			out.WriteString("    nothing came back from there\n    to do: see that something listens there, and that the pod's policies admit the client; " +
				"what nftables does not show, such as eBPF programs of the CNI, may drop it too\n")
		}
		if t.Answer != nil {
			_, _ = fmt.Fprintf(&out, "  the answer, %s:\n", listing.Count(t.Answer.Journey.Packets, "packet"))
			stepText(&out, t.Answer, "  ")
		}
		if t.Resets > 0 {
			_, _ = fmt.Fprintf(&out, "    the client refused it with %s (TCP resets)\n", listing.Count(t.Resets, "packet"))
		}
	}
	if arrived > mostArrived {
		_, _ = fmt.Fprintf(&out, "and %d more that arrived\n", arrived-mostArrived)
	}
	return out.String()
}

// stepText describes a node, and those behind it.
func stepText(out *strings.Builder, s *packettrace.Step, margin string) {
	j := s.Journey
	var parts []string
	if j.In != "" {
		parts = append(parts, "in "+j.In)
	}
	if j.Out != "" {
		parts = append(parts, "out "+j.Out)
	}
	if j.Left != j.Came {
		parts = append(parts, "as "+j.Left.String())
	}
	_, _ = fmt.Fprintf(out, "%s%s/%s: %s, %s\n", margin, s.Cluster, s.Node, listing.Count(j.Packets, "packet"), strings.Join(parts, ", "))
	if why, do := endText(s); why != "" {
		_, _ = fmt.Fprintf(out, "%s  %s\n", margin, why)
		if do != "" {
			_, _ = fmt.Fprintf(out, "%s  to do: %s\n", margin, do)
		}
	}
	for _, next := range s.Next {
		stepText(out, next, margin)
	}
}

// endText says why packets were not seen behind a node, and what to do.
func endText(s *packettrace.Step) (why, do string) {
	switch s.Outcome {
	case packettrace.Dropped:
		if s.Finding == nil {
			return "ended here", "see hawser-agent diagnose on the node"
		}
		return "ended at " + s.Finding.Place + ": " + s.Finding.Text, s.Finding.Do
	case packettrace.Vanished:
		return "sent over " + s.Journey.Out + ", and seen on no other node", lostBetween(s.Journey)
	case packettrace.Circling:
		return "sent over " + s.Journey.Out + " to a node that had it before: it goes round in circles",
			"hawser show paths lists the path to each cluster, and hawser-agent status on these nodes shows which fabric they follow"
	case packettrace.Astray:
		return fmt.Sprintf("the answer did not come back through %s, which translated the question: %s/%s sent it out of %s, and the client did not ask %s",
				s.Past, s.Cluster, s.Node, s.Journey.Out, s.Journey.Left.From),
			fmt.Sprintf("look on %s/%s for who gives packets from %s a mark: rule 7289 leads back what has Hawser's (nft list ruleset, ip rule); "+
				"hawser-agent plan there lists what is missing of Hawser's own", s.Cluster, s.Node, s.Journey.In)
	case packettrace.Unclear:
		return "sent over " + s.Journey.Out + "; it is not known what the next node saw of it, which was not asked, did not answer, or does not follow all packets", ""
	}
	return "", ""
}

func lostBetween(j status.Journey) string {
	if strings.HasPrefix(j.Out, desired.NodePrefix) {
		return fmt.Sprintf("let UDP %d through between the nodes of this cluster, or look for an address that two nodes have", desired.VXLANPort)
	}
	return "hawser show connections lists the links between the gateways, with loss and path MTU; a firewall between them may drop the tunnel"
}
