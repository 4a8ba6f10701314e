package packettrace

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/status"
)

// answers joins what came back to what was asked.
func (j *joiner) answers(trips []Trip) []Trip {
	begins := map[status.Ends][]int{}
	for i, t := range trips {
		if came := t.First.Journey.Came; hasPort(came.From) {
			begins[came] = append(begins[came], i)
		}
	}
	answers, refused := map[int]bool{}, map[status.Ends]int{}
	for i := range trips {
		t := &trips[i]
		if !hasPort(t.First.Journey.Came.To) {
			continue // an answer, or of a protocol where nothing tells which is one
		}
		back := j.back(t, begins)
		t.Answered = len(back) > 0
		for _, b := range back {
			answers[b] = true
			outcome := trips[b].Outcome
			for _, last := range j.past(t.First, trips[b].First) {
				outcome = worse(outcome, last.Outcome)
				if last.Outcome == Astray {
					refused[reverse(last.Journey.Left)] = i
				}
			}
			if outcome = worse(t.Outcome, outcome); outcome != t.Outcome {
				t.Answer, t.Outcome = trips[b].First, outcome
			}
		}
		if !t.Answered && t.Outcome == Arrived && j.quiet(t) {
			t.Outcome = Unanswered
		}
	}
	var out []Trip
	for i, t := range trips {
		// What drops these does right: no node knows the connection.
		if of, is := refused[t.First.Journey.Came]; is && t.First.Journey.Resets == t.First.Journey.Packets {
			trips[of].Resets += t.First.Journey.Packets
			answers[i] = true
		}
	}
	for i, t := range trips {
		if !answers[i] {
			out = append(out, t)
		}
	}
	return out
}

// hasPort says that an end is the server's: the client's port is not told.
func hasPort(end string) bool {
	_, err := netip.ParseAddrPort(end)
	return err == nil
}

// back finds the trips of the answers.
func (j *joiner) back(t *Trip, begins map[status.Ends][]int) []int {
	var out []int
	for _, last := range leaves(t.First) {
		out = append(out, begins[reverse(last.Journey.Left)]...)
	}
	return out
}

func reverse(e status.Ends) status.Ends {
	return status.Ends{Protocol: e.Protocol, From: e.To, To: e.From}
}

// past marks and gives the ends of an answer on other nodes than the one that translated
// the question, with what only that one could have turned back: the client did not ask
// who seems to answer. Where that node may have had it unseen they are Unclear.
func (j *joiner) past(question, answer *Step) []*Step {
	asked := question.Journey
	if asked.Came == asked.Left {
		return nil
	}
	var out []*Step
	for _, last := range leaves(answer) {
		if last.Cluster != question.Cluster || last.Node == question.Node || last.Journey.Passed == 0 ||
			last.Journey.Out == "" || ours(last.Journey.Out) || last.Journey.Left != reverse(asked.Left) {
			continue
		}
		last.Outcome, last.Past = Unclear, question.Cluster+"/"+question.Node
		if by := question.seen; !by.Full && follows(by.Only, last.Journey.Left) && j.watched(last) {
			last.Outcome = Astray
		}
		out = append(out, last)
	}
	return out
}

// quiet says that a server of another cluster should have answered, and that somebody
// looked who would have seen it.
func (j *joiner) quiet(t *Trip) bool {
	return !j.full && t.First.Journey.Came.Protocol == "tcp" && slices.ContainsFunc(leaves(t.First), func(last *Step) bool {
		return last.Cluster != t.First.Cluster && last.Journey.Out != "" && follows(last.seen.Only, last.Journey.Left) &&
			j.watched(last)
	})
}

// leaves are the last steps.
func leaves(s *Step) []*Step {
	if len(s.Next) == 0 {
		return []*Step{s}
	}
	var out []*Step
	for _, next := range s.Next {
		out = append(out, leaves(next)...)
	}
	return out
}
