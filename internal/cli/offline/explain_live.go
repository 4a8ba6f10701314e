package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/access"
)

// liveText formats the agents' reports about an answer.
func liveText(a *access.Answer) string {
	var out strings.Builder
	writeLine := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	for i := range a.Destinations {
		cluster, t := a.Destinations[i].Cluster, a.Destinations[i].Live
		if t == nil {
			continue
		}
		verdict := map[string]string{access.Delivered: "it arrives", access.NotDelivered: "nothing arrives",
			access.Unknown: "delivery unknown"}[t.Verdict]
		if len(t.Reasons) > 0 {
			verdict += ": " + strings.Join(t.Reasons, "; ")
		}
		writeLine("\nnow in %s: %s", cluster, verdict)
		for _, h := range t.Hops {
			if len(h.Links) == 0 {
				writeLine("  links                  none between %s and %s", h.From, h.To)
			}
			for _, k := range h.Links {
				text := fmt.Sprintf("%s - %s (%s): %s", k.From, k.To, k.Driver, k.State)
				if k.State == access.Unknown {
					text = fmt.Sprintf("%s - %s (%s): not known", k.From, k.To, k.Driver)
				}
				if k.RTT > 0 {
					text += ", " + (time.Duration(k.RTT) * time.Microsecond).String()
				}
				if k.InUse {
					text += ", in use"
				}
				if len(k.Nodes) > 0 {
					text += " by " + strings.Join(k.Nodes, ", ")
				}
				writeLine("  link                   %s", text)
				for _, name := range slices.Sorted(maps.Keys(k.ActiveNodes)) {
					writeLine("  %-22s is held by node %s", name, k.ActiveNodes[name])
				}
				if k.InUse {
					for _, name := range slices.Sorted(maps.Keys(k.EndpointResults)) {
						writeLine("  %-22s reached at: %s", name, k.EndpointResults[name])
					}
				}
			}
		}
		if len(t.Backends) > 0 {
			writeLine("  ready backends         %s", strings.Join(t.Backends, ", "))
		} else if t.Ready != "" {
			writeLine("  ready backends         %s", map[string]string{"no": "none", "yes": "yes", access.Unknown: "unknown"}[t.Ready])
		}
		for _, policy := range t.Policies {
			writeLine("  may drop packets       %s", policy)
		}
	}
	for _, list := range []struct {
		title string
		texts []string
	}{{"Missing", a.Live.Missing}, {"Not known", a.Live.Unknown}} {
		if len(list.texts) > 0 {
			writeLine("\n%s\n  %s", list.title, strings.Join(list.texts, "\n  "))
		}
	}
	return out.String()
}
