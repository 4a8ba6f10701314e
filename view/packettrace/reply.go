package packettrace

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/status"
)

// joinReplies joins the traces of replies to the traces of their requests.
func (j *joiner) joinReplies(traces []Trace) []Trace {
	byFirstPacket := map[status.Ends][]int{}
	for i, t := range traces {
		if ingress := t.First.Flow.Ingress; hasPort(ingress.From) {
			byFirstPacket[ingress] = append(byFirstPacket[ingress], i)
		}
	}
	answers, refused := map[int]bool{}, map[status.Ends]int{}
	for i := range traces {
		t := &traces[i]
		if !hasPort(t.First.Flow.Ingress.To) {
			continue // a reply, or a protocol that does not distinguish requests and replies
		}
		replies := j.repliesTo(t, byFirstPacket)
		t.Answered = len(replies) > 0
		for _, b := range replies {
			answers[b] = true
			outcome := traces[b].Outcome
			for _, last := range j.bypassing(t.First, traces[b].First) {
				outcome = worseOutcome(outcome, last.Outcome)
				if last.Outcome == WrongReturnPath {
					refused[reverse(last.Flow.Egress)] = i
				}
			}
			if outcome = worseOutcome(t.Outcome, outcome); outcome != t.Outcome {
				t.Answer, t.Outcome = traces[b].First, outcome
			}
		}
		if !t.Answered && t.Outcome == Arrived && j.noReplySeen(t) {
			t.Outcome = Unanswered
		}
	}
	var out []Trace
	for i, t := range traces {
		// A drop of these packets is correct, because no node knows the connection.
		if requestTrace, ok := refused[t.First.Flow.Ingress]; ok && t.First.Flow.Resets == t.First.Flow.Packets {
			traces[requestTrace].Resets += t.First.Flow.Packets
			answers[i] = true
		}
	}
	for i, t := range traces {
		if !answers[i] {
			out = append(out, t)
		}
	}
	return out
}

// hasPort reports whether an end is the server, because reports omit the client's port.
func hasPort(end string) bool {
	_, err := netip.ParseAddrPort(end)
	return err == nil
}

// repliesTo returns the indexes of the traces of the replies.
func (j *joiner) repliesTo(t *Trace, byFirstPacket map[status.Ends][]int) []int {
	var out []int
	for _, last := range leaves(t.First) {
		out = append(out, byFirstPacket[reverse(last.Flow.Egress)]...)
	}
	return out
}

func reverse(e status.Ends) status.Ends {
	return status.Ends{Protocol: e.Protocol, From: e.To, To: e.From}
}

// bypassing marks and returns the last hops of a reply on nodes other than the translating node.
// Only that node can reverse the translation; otherwise the client gets a reply from an unknown
// address. The hops are Unclear if the translating node may have forwarded the reply unobserved.
func (j *joiner) bypassing(question, answer *Hop) []*Hop {
	requestFlow := question.Flow
	if requestFlow.Ingress == requestFlow.Egress {
		return nil
	}
	var out []*Hop
	for _, last := range leaves(answer) {
		if last.Cluster != question.Cluster || last.Node == question.Node || last.Flow.Passed == 0 ||
			last.Flow.Out == "" || isHawserDevice(last.Flow.Out) || last.Flow.Egress != reverse(requestFlow.Egress) {
			continue
		}
		last.Outcome, last.Bypassed = Unclear, question.Cluster+"/"+question.Node
		if observer := question.trace; !observer.Sampled && follows(observer.Prefixes, last.Flow.Egress) && j.allNodesObserved(last) {
			last.Outcome = WrongReturnPath
		}
		out = append(out, last)
	}
	return out
}

// noReplySeen reports whether a server of another cluster should have replied, and an observing
// node would have observed the reply.
func (j *joiner) noReplySeen(t *Trace) bool {
	return !j.sampled && t.First.Flow.Ingress.Protocol == "tcp" && slices.ContainsFunc(leaves(t.First), func(last *Hop) bool {
		return last.Cluster != t.First.Cluster && last.Flow.Out != "" && follows(last.trace.Prefixes, last.Flow.Egress) &&
			j.allNodesObserved(last)
	})
}

// leaves returns the last hops.
func leaves(s *Hop) []*Hop {
	if len(s.Next) == 0 {
		return []*Hop{s}
	}
	var out []*Hop
	for _, next := range s.Next {
		out = append(out, leaves(next)...)
	}
	return out
}
