package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/diag"
)

// maxTicks is the maximum number of links that a bar shows one by one.
const maxTicks = 40

// drawnLine is a line of the drawing of hawser status --watch.
type drawnLine struct {
	group string // Links or Exports
	key   string // identifies the node or export
	cells [2]string
}

// statusDrawing returns the drawing of the clusters' states: a bar of links for each gateway, and
// the exporting and importing clusters of each export. A star, and the colour if color is set,
// marks lines that differ from before. If before is nil, no line is marked.
func statusDrawing(before, now []health.State, color bool) string {
	have, previous := drawnLines(now), map[string]drawnLine{}
	for _, l := range drawnLines(before) {
		previous[l.key] = l
	}
	width := 0
	for _, l := range have {
		width = max(width, len([]rune(l.cells[0])))
	}
	var out strings.Builder
	group := ""
	write := func(l drawnLine, mark, note string) {
		if l.group != group {
			group = l.group
			_, _ = fmt.Fprintf(&out, "%s\n", group)
		}
		text := fmt.Sprintf("%s %-*s  %s%s", mark, width, l.cells[0], l.cells[1], note)
		if mark != " " && color {
			text = "\x1b[1;33m" + text + "\x1b[0m"
		}
		out.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	for _, l := range have {
		old, known := previous[l.key]
		delete(previous, l.key)
		switch {
		case before == nil || old == l:
			write(l, " ", "")
		case !known:
			write(l, "*", "  (new)")
		default:
			write(l, "*", "  (was: "+old.cells[1]+")")
		}
	}
	for _, l := range slices.SortedFunc(maps.Values(previous), func(a, b drawnLine) int {
		return cmp.Or(-cmp.Compare(a.group, b.group), cmp.Compare(a.key, b.key))
	}) {
		l.cells[1], l.group = "is gone, was "+l.cells[1], "Gone"
		write(l, "*", "")
	}
	return out.String()
}

// drawnLines returns the lines in order. Texts of clusters cannot move the cursor.
func drawnLines(states []health.State) []drawnLine {
	var out []drawnLine
	for _, s := range states {
		if s.Error != "" {
			out = append(out, drawnLine{"Links", "cluster/" + s.Cluster, [2]string{diag.Line(s.Cluster), "? no answer: " + diag.Line(s.Error)}})
		}
		for _, n := range s.Nodes {
			if n.Links == 0 && n.Ready == "True" {
				continue
			}
			text := bar(n.LinksUp, n.Links)
			if n.Drained {
				text += ", drained"
			}
			if n.Ready != "True" {
				text += ", not ready"
			}
			out = append(out, drawnLine{"Links", "node/" + s.Cluster + "/" + n.Name, [2]string{diag.Line(s.Cluster + "/" + n.Name), text}})
		}
	}
	type ends struct{ from, to []string }
	all := map[string]*ends{}
	for _, s := range states {
		for _, e := range s.Exports {
			id := e.Namespace + "/" + e.Name
			if all[id] == nil {
				all[id] = &ends{}
			}
			switch {
			case e.Exported:
				all[id].from = append(all[id].from, diag.Line(s.Cluster))
			case e.Type != "":
				all[id].to = append(all[id].to, diag.Line(s.Cluster))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		text := cmp.Or(strings.Join(all[id].from, ", "), "nobody") + " ==> " + cmp.Or(strings.Join(all[id].to, ", "), "nobody")
		out = append(out, drawnLine{"Exports", "export/" + id, [2]string{diag.Line(id), text}})
	}
	return out
}

// bar draws links one by one, up and down, and counts them.
func bar(up, all int64) string {
	up = min(max(up, 0), max(all, 0))
	ticks, shown := max(all, 0), up
	if ticks > maxTicks {
		shown, ticks = up*maxTicks/all, maxTicks
	}
	return fmt.Sprintf("[%s%s] %d of %d up", strings.Repeat("=", int(shown)), strings.Repeat(".", int(ticks-shown)), up, all)
}
