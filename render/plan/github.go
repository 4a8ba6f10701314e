package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// maxAnnotations limits the annotations of each level. GitHub shows ten of a
// step and fifty of a run.
const maxAnnotations = 50

// GitHub writes workflow commands. GitHub shows them as annotations on the lines of a pull request,
// at most ten of each level: errors and disruptive changes come first. All effects of one line are
// one annotation.
//
// Source: docs.github.com, "Workflow commands for GitHub Actions"; escapes as in
// actions/toolkit, packages/core/src/command.ts.
func (r *Report) GitHub(w io.Writer) error {
	out := bufio.NewWriter(w)
	type spot struct {
		file  string
		line  int
		level string
	}
	var order []remark
	at := map[spot]int{}
	for _, m := range r.remarks() {
		here := spot{m.file, m.line, m.level}
		i, said := at[here]
		if said && m.level != levelError {
			order[i].text += "\n" + m.text
			continue
		}
		at[here] = len(order)
		order = append(order, m)
	}
	written := map[string]int{}
	for _, m := range order {
		if written[m.level]++; written[m.level] > maxAnnotations {
			continue
		}
		properties := fmt.Sprintf("file=%s,line=%d", property(m.file), m.line)
		if m.column > 0 {
			properties += fmt.Sprintf(",col=%d", m.column)
		}
		title, _, _ := strings.Cut(m.text, "\n")
		_, _ = fmt.Fprintf(out, "::%s %s,title=%s::%s\n", command(m.level), properties, property("hawser: "+title), data(m.text))
	}
	for _, level := range levels() {
		if more := written[level] - maxAnnotations; more > 0 {
			_, _ = fmt.Fprintf(out, "%d more annotations of level %s are not written.\n", more, command(level))
		}
	}
	if r.Plan != nil {
		s := r.Plan.Summary
		_, _ = fmt.Fprintf(out, "Plan: %d to add, %d to change, %d to destroy, %d disruptive.\n", s.Add, s.Change, s.Destroy, s.Disruptive)
	}
	return out.Flush()
}

func command(level string) string {
	if level == levelNote {
		return "notice"
	}
	return level
}

// data escapes the text of a workflow command.
func data(text string) string {
	return strings.NewReplacer("%", "%25", "\n", "%0A").Replace(sanitize(text, '\n'))
}

// property escapes a property of a workflow command.
func property(text string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(sanitize(text))
}
