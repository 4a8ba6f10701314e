package lanes

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/svg"
)

// Parse reads ways as people write them, for drawings in documents:
//
//	# a comment
//	title: what the drawing is called
//	way: what the way is called
//	a lane: what happens there | more of it | and more
//	-> over what the next step is come to
//	a lane!: where it ends, in red
//
// A line that begins with white space goes on with the one before. Errors name the line.
func Parse(text string) (title string, ways []Way, err error) {
	by, number := "", 0
	var lines []string
	var at []int
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case len(lines) > 0 && (line[0] == ' ' || line[0] == '\t'):
			lines[len(lines)-1] += " " + trimmed
		default:
			lines, at = append(lines, trimmed), append(at, number)
		}
	}
	for i, line := range lines {
		if over, is := strings.CutPrefix(line, "->"); is {
			by = strings.TrimSpace(over)
			continue
		}
		name, rest, found := strings.Cut(line, ": ")
		switch {
		case !found:
			return "", nil, fmt.Errorf("line %d: %q has no colon: write LANE: TEXT, way: TEXT, title: TEXT or -> TEXT", at[i], line)
		case name == "title":
			title = rest
		case name == "way":
			ways = append(ways, Way{Title: rest})
		default:
			if len(ways) == 0 {
				ways = append(ways, Way{})
			}
			s := Step{By: by}
			if s.Lane = strings.TrimSuffix(name, "!"); s.Lane != name {
				s.Tone = svg.Bad
			}
			for part := range strings.SplitSeq(rest, "|") {
				s.Texts = append(s.Texts, strings.TrimSpace(part))
			}
			w := &ways[len(ways)-1]
			w.Steps, by = append(w.Steps, s), ""
		}
	}
	if len(ways) == 0 {
		return "", nil, fmt.Errorf("line %d: there is no step: write LANE: TEXT", max(number, 1))
	}
	return title, ways, nil
}
