package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/status"
)

// summary returns the text of the summary file.
func (g *collector) summary(targets string, missing []string) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("hawser gather, hawser %s, %s", g.version, g.at.Format(time.RFC3339))
	line("queried: %s", targets)
	for _, api := range slices.Sorted(slices.Values(g.apis)) {
		line("%s", api)
	}
	agents := agentquery.Sort(g.agents)
	line("%s answered, versions: %s", humanize.Plural(len(agents), "agent"), tally(agents, func(s status.Status) string { return s.Version }))
	line("fabrics: %s", tally(agents, func(s status.Status) string { return s.Digest }))
	var wrong []string
	for _, p := range health.Merge(health.Assess(g.states), health.Assess(health.StatesOf(agents))) {
		wrong = append(wrong, p.String())
	}
	wrong = append(wrong, slices.Sorted(slices.Values(g.notes))...)
	list := func(title string, texts []string) {
		line("")
		line("%s", title)
		for _, text := range texts {
			line("  %s", text)
		}
		if len(texts) == 0 {
			line("  nothing")
		}
	}
	list("Problems that agents and APIs report:", wrong)
	list("Not collected:", missing)
	return out.String()
}

// tally counts agents by a property: "dev (3), v1 (1)".
func tally(agents []status.Status, of func(status.Status) string) string {
	count := map[string]int{}
	for _, s := range agents {
		count[cmp.Or(of(s), "none")]++
	}
	var out []string
	for _, value := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%s (%d)", value, count[value]))
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}
