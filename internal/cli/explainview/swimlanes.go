package explainview

import (
	"slices"
	"strings"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/swimlane"
)

// Swimlanes draws an answer: one path for each cluster that may reply.
func Swimlanes(a *access.Answer, place func(path string) string) []swimlane.Path {
	client := swimlane.Event{Swimlane: a.From.Cluster, Texts: []string{a.From.String()}}
	if a.To.Export != "" {
		client.Texts = append(client.Texts, "asks for "+a.To.Export+" ("+a.Name+")")
	} else {
		client.Texts = append(client.Texts, "asks for "+a.To.Addr.String())
	}
	if len(a.Destinations) == 0 {
		w := swimlane.Path{Title: a.Summary(), Tone: svg.Good, Events: []swimlane.Event{client}}
		if !a.Reached() {
			w.Tone, w.Events = svg.Bad, append(w.Events, swimlane.Event{Swimlane: client.Swimlane, Tone: svg.Bad, Texts: []string{"ends here", a.Reason}})
		}
		return []swimlane.Path{w}
	}
	var out []swimlane.Path
	for i := range a.Destinations {
		out = append(out, explainPath(client, a.From.Cluster, &a.Destinations[i], place))
	}
	return out
}

// explainPath draws the path to one cluster. A refused path ends in red at the refusing gateway.
// Without any route, it ends in red at its start.
func explainPath(client swimlane.Event, from string, t *access.Destination, place func(path string) string) swimlane.Path {
	w := swimlane.Path{Title: "in " + t.Cluster + ": yes", Tone: svg.Good}
	if len(t.Requested) > 0 {
		client.Texts = append(slices.Clone(client.Texts), "at "+AddrsText(t.Requested))
	}
	w.Events = []swimlane.Event{client}
	end := func(lane, via string, texts ...string) swimlane.Path {
		w.Tone = svg.Bad
		w.Events = append(w.Events, swimlane.Event{Swimlane: lane, Via: via, Tone: svg.Bad, Texts: texts})
		return w
	}
	refused := strings.HasSuffix(t.DecidedBy, ".allow")
	if !t.Allowed {
		w.Title = "in " + t.Cluster + ": no"
	}
	reason := t.Reason
	if source := place(t.DecidedBy); source != "" && t.DecidedBy != "" {
		reason += " (" + source + ")"
	}
	if !t.Allowed && !refused {
		return end(from, "", "ends here", reason)
	}
	if t.Cluster == from {
		w.Events = append(w.Events, swimlane.Event{Swimlane: from, Texts: []string{"stays in the cluster", "handed to " + t.Backend}})
		return explainLive(w, t)
	}
	for i, l := range t.Links {
		if i == 0 {
			out := swimlane.Event{Swimlane: l.From, Texts: []string{"source translated", "to " + strings.Join(t.Sources, ", ")}}
			if len(t.Sources) == 0 {
				out.Texts = []string{"sent on", "with the client's own address"}
				if !t.Allowed {
					out.Texts = []string{"sent on"}
				}
			}
			w.Events = append(w.Events, out)
		}
		if t.Live != nil && i < len(t.Live.Hops) && !t.Live.Hops[i].Alive() {
			hop := &t.Live.Hops[i]
			w.Title = "in " + t.Cluster + ": allowed, but nothing arrives"
			return end(l.From, "", "ends here", "no link between "+hop.From+" and "+hop.To+" is alive")
		}
		in := swimlane.Event{Swimlane: l.To, Via: l.Driver, Texts: []string{"forwarded"}}
		if t.Live != nil && i < len(t.Live.Hops) {
			links := t.Live.Hops[i].Links
			if k := slices.IndexFunc(links, func(k access.LiveLink) bool { return k.InUse && k.RTT > 0 }); k >= 0 {
				in.Via += ", " + agentquery.AverageRTT(&status.RTT{Avg: links[k].RTT})
			}
		}
		if i == len(t.Links)-1 {
			if !t.Allowed {
				return end(l.To, l.Driver, "ends here", reason)
			}
			in.Texts = []string{"comes in for " + AddrsText(t.Translated)}
			if source := place(t.DecidedBy); source != "" {
				in.Texts = append(in.Texts, "admitted by "+source)
			}
		}
		w.Events = append(w.Events, in)
	}
	w.Events = append(w.Events, swimlane.Event{Swimlane: t.Cluster, Texts: []string{"handed to " + t.Backend}})
	return explainLive(w, t)
}

// explainLive adds the agents' reports about a path that the topology allows.
func explainLive(w swimlane.Path, t *access.Destination) swimlane.Path {
	now := t.Live
	if now == nil {
		return w
	}
	last := &w.Events[len(w.Events)-1]
	switch now.Verdict {
	case access.NotDelivered:
		w.Title, w.Tone = "in "+t.Cluster+": allowed, but nothing arrives", svg.Bad
		w.Events = append(w.Events, swimlane.Event{Swimlane: last.Swimlane, Tone: svg.Bad, Texts: append([]string{"ends here"}, now.Reasons...)})
	case access.Unknown:
		w.Title, w.Tone = "in "+t.Cluster+": allowed, delivery unknown", svg.Fair
		w.Events = append(w.Events, swimlane.Event{Swimlane: last.Swimlane, Tone: svg.Dim, Texts: append([]string{"unknown"}, now.Reasons...)})
	default:
		if len(now.Backends) > 0 {
			last.Texts = append(last.Texts, "ready: "+strings.Join(now.Backends, ", "))
		}
	}
	return w
}
