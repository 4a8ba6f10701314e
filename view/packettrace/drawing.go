package packettrace

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/view/swimlane"
)

// Paths returns the swimlanes of a trace: one path for each node where packets ended, and one for
// the reply.
func (t Trace) Paths() []swimlane.Path {
	title := fmt.Sprintf("%s, %s: %s", t.First.Flow.Ingress, humanize.Plural(t.First.Flow.Packets, "packet"), t.Outcome)
	tone := svg.Bad
	switch t.Outcome {
	case Arrived:
		tone = svg.Good
	case Unclear:
		tone = svg.Fair
	}
	out := hopPaths(swimlane.Path{Title: title, Tone: tone}, t.First, "")
	if t.Outcome == Unanswered {
		for i := range out {
			lane := out[i].Events[len(out[i].Events)-1].Swimlane
			out[i].Events = append(out[i].Events, swimlane.Event{Swimlane: lane, Tone: svg.Bad, Texts: []string{"nothing came back from here",
				"to do: see that something listens there, and that the pod's policies admit the client"}})
		}
	}
	if t.Answer != nil {
		out = append(out, hopPaths(swimlane.Path{Title: "the answer, " + humanize.Plural(t.Answer.Flow.Packets, "packet"), Tone: tone}, t.Answer, "")...)
	}
	return out
}

// hopPaths extends a path from a hop to each of its ends. via is the device on which the packets
// arrived.
func hopPaths(w swimlane.Path, s *Hop, via string) []swimlane.Path {
	texts := []string{humanize.Plural(s.Flow.Packets, "packet")}
	if via == "" {
		texts = append(texts, s.Flow.Ingress.String())
	}
	if s.Flow.Egress != s.Flow.Ingress {
		texts = append(texts, "leave as "+s.Flow.Egress.String())
	}
	lane := s.Cluster + "/" + s.Node
	w.Events = append(slices.Clone(w.Events), swimlane.Event{Swimlane: lane, Via: via, Texts: texts})
	reason, advice := endText(s)
	if reason != "" {
		end := swimlane.Event{Swimlane: lane, Tone: svg.Bad, Texts: []string{reason}}
		if s.Outcome == Unclear {
			end.Tone = svg.Fair
		}
		if advice != "" {
			end.Texts = append(end.Texts, "to do: "+advice)
		}
		w.Events = append(w.Events, end)
	}
	if len(s.Policies) > 0 {
		w.Events = append(w.Events, swimlane.Event{Swimlane: lane, Tone: svg.Bad, Texts: s.Policies})
	}
	if len(s.Next) == 0 {
		return []swimlane.Path{w}
	}
	var out []swimlane.Path
	for _, next := range s.Next {
		out = append(out, hopPaths(w, next, s.Flow.Out)...)
	}
	return out
}
