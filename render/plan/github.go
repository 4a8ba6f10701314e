package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// maxAnnotations is the maximum number of annotations of each level. GitHub shows ten for a step
// and fifty for a run.
const maxAnnotations = 50

// GitHub writes workflow commands. GitHub shows them as annotations on the lines of a pull request.
// It shows at most ten of each level, so errors and disruptive changes come first. All effects of
// one line are one annotation.
//
// Source: docs.github.com, "Workflow commands for GitHub Actions"; escapes as in actions/toolkit,
// packages/core/src/command.ts.
func (r *Report) GitHub(w io.Writer) error {
	out := bufio.NewWriter(w)
	type position struct {
		file  string
		line  int
		level string
	}
	var order []annotation
	index := map[position]int{}
	for _, m := range r.annotations() {
		pos := position{m.file, m.line, m.level}
		i, exists := index[pos]
		if exists && m.level != levelError {
			order[i].text += "\n" + m.text
			continue
		}
		index[pos] = len(order)
		order = append(order, m)
	}
	counts := map[string]int{}
	for _, m := range order {
		if counts[m.level]++; counts[m.level] > maxAnnotations {
			continue
		}
		properties := fmt.Sprintf("file=%s,line=%d", escapeProperty(m.file), m.line)
		if m.column > 0 {
			properties += fmt.Sprintf(",col=%d", m.column)
		}
		title, _, _ := strings.Cut(m.text, "\n")
		_, _ = fmt.Fprintf(out, "::%s %s,title=%s::%s\n", annotationLevel(m.level), properties, escapeProperty("hawser: "+title), escapeData(m.text))
	}
	for _, level := range levels() {
		if more := counts[level] - maxAnnotations; more > 0 {
			_, _ = fmt.Fprintf(out, "%d more annotations of level %s are not written.\n", more, annotationLevel(level))
		}
	}
	if r.Plan != nil {
		s := r.Plan.Summary
		_, _ = fmt.Fprintf(out, "Plan: %d to add, %d to change, %d to destroy, %d disruptive.\n", s.Add, s.Change, s.Destroy, s.Disruptive)
	}
	return out.Flush()
}

func annotationLevel(level string) string {
	if level == levelNote {
		return "notice"
	}
	return level
}

// escapeData escapes the text of a workflow command.
func escapeData(text string) string {
	return strings.NewReplacer("%", "%25", "\n", "%0A").Replace(sanitize(text, '\n'))
}

// escapeProperty escapes a property of a workflow command.
func escapeProperty(text string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(sanitize(text))
}
