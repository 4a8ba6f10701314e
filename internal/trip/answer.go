package trip

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
	answers := map[int]bool{}
	for i := range trips {
		t := &trips[i]
		if !hasPort(t.First.Journey.Came.To) {
			continue // an answer, or of a protocol where nothing tells which is one
		}
		back := j.back(t, begins)
		t.Answered = len(back) > 0
		for _, b := range back {
			answers[b] = true
			if outcome := worse(t.Outcome, trips[b].Outcome); outcome != t.Outcome {
				t.Answer, t.Outcome = trips[b].First, outcome
			}
		}
		if !t.Answered && t.Outcome == Arrived && j.quiet(t) {
			t.Outcome = Unanswered
		}
	}
	var out []Trip
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
		left := last.Journey.Left
		out = append(out, begins[status.Ends{Protocol: left.Protocol, From: left.To, To: left.From}]...)
	}
	return out
}

// quiet says that a server of another cluster should have answered, and that somebody
// looked who would have seen it.
func (j *joiner) quiet(t *Trip) bool {
	return !j.full && t.First.Journey.Came.Protocol == "tcp" && slices.ContainsFunc(leaves(t.First), func(last *Step) bool {
		return last.Cluster != t.First.Cluster && last.Journey.Out != "" && follows(last.seen.Only, last.Journey.Left) &&
			(j.watched(last, last.Journey.First) || j.watched(last, last.Journey.Last))
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
