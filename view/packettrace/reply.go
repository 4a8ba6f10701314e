package packettrace

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/status"
)

// joinReplies joins the traces of replies to the traces of their requests.
func (j *joiner) joinReplies(traces []Trace) []Trace {
	begins := map[status.Ends][]int{}
	for i, t := range traces {
		if came := t.First.Flow.Ingress; hasPort(came.From) {
			begins[came] = append(begins[came], i)
		}
	}
	answers, refused := map[int]bool{}, map[status.Ends]int{}
	for i := range traces {
		t := &traces[i]
		if !hasPort(t.First.Flow.Ingress.To) {
			continue // a reply, or a protocol that does not distinguish requests and replies
		}
		back := j.repliesTo(t, begins)
		t.Answered = len(back) > 0
		for _, b := range back {
			answers[b] = true
			outcome := traces[b].Outcome
			for _, last := range j.past(t.First, traces[b].First) {
				outcome = worse(outcome, last.Outcome)
				if last.Outcome == WrongReturnPath {
					refused[reverse(last.Flow.Egress)] = i
				}
			}
			if outcome = worse(t.Outcome, outcome); outcome != t.Outcome {
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
		if of, is := refused[t.First.Flow.Ingress]; is && t.First.Flow.Resets == t.First.Flow.Packets {
			traces[of].Resets += t.First.Flow.Packets
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
func (j *joiner) repliesTo(t *Trace, begins map[status.Ends][]int) []int {
	var out []int
	for _, last := range leaves(t.First) {
		out = append(out, begins[reverse(last.Flow.Egress)]...)
	}
	return out
}

func reverse(e status.Ends) status.Ends {
	return status.Ends{Protocol: e.Protocol, From: e.To, To: e.From}
}

// past marks and returns the last hops of a reply on nodes other than the translating node. Only
// that node can reverse the translation; otherwise the client gets a reply from an unknown address.
// The hops are Unclear if the translating node may have forwarded the reply unobserved.
func (j *joiner) past(question, answer *Hop) []*Hop {
	asked := question.Flow
	if asked.Ingress == asked.Egress {
		return nil
	}
	var out []*Hop
	for _, last := range leaves(answer) {
		if last.Cluster != question.Cluster || last.Node == question.Node || last.Flow.Passed == 0 ||
			last.Flow.Out == "" || isHawserDevice(last.Flow.Out) || last.Flow.Egress != reverse(asked.Egress) {
			continue
		}
		last.Outcome, last.Bypassed = Unclear, question.Cluster+"/"+question.Node
		if by := question.seen; !by.Sampled && follows(by.Prefixes, last.Flow.Egress) && j.watched(last) {
			last.Outcome = WrongReturnPath
		}
		out = append(out, last)
	}
	return out
}

// noReplySeen reports whether a server of another cluster should have replied, and an observing
// node would have observed the reply.
func (j *joiner) noReplySeen(t *Trace) bool {
	return !j.full && t.First.Flow.Ingress.Protocol == "tcp" && slices.ContainsFunc(leaves(t.First), func(last *Hop) bool {
		return last.Cluster != t.First.Cluster && last.Flow.Out != "" && follows(last.seen.Prefixes, last.Flow.Egress) &&
			j.watched(last)
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
