package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// GitHub writes workflow commands, of which GitHub makes annotations on the lines of a
// pull request: errors and what is disruptive first, as it shows ten of each level. What
// one line causes is one annotation.
//
// Source: docs.github.com, "Workflow commands for GitHub Actions"; escapes are those of
// actions/toolkit, packages/core/src/command.ts.
func (r *Report) GitHub(w io.Writer) error {
	out := bufio.NewWriter(w)
	var order []remark
	for _, m := range r.remarks() {
		at := len(order) - 1
		for ; at >= 0; at-- {
			if order[at].file == m.file && order[at].line == m.line && order[at].level == m.level && m.level != levelError {
				order[at].text += "\n" + m.text
				break
			}
		}
		if at < 0 {
			order = append(order, m)
		}
	}
	for _, m := range order {
		properties := fmt.Sprintf("file=%s,line=%d", property(m.file), m.line)
		if m.column > 0 {
			properties += fmt.Sprintf(",col=%d", m.column)
		}
		title, _, _ := strings.Cut(m.text, "\n")
		_, _ = fmt.Fprintf(out, "::%s %s,title=%s::%s\n", command(m.level), properties, property("hawser: "+title), data(m.text))
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
	return strings.NewReplacer("%", "%25", "\n", "%0A").Replace(clean(text, '\n'))
}

// property escapes a property of a workflow command.
func property(text string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(clean(text))
}
