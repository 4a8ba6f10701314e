package plan

import (
	"fmt"
	"html"
	"io"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/view/clustermap"
)

// maxMarkdown is the maximum size of the sections in bytes. A comment on GitHub has at most 65536
// characters, on GitLab 1000000.
const maxMarkdown = 56 << 10

// Marker returns the last line of a Markdown comment for a clusterset. CI jobs search for it to
// update their comment.
func Marker(clusterset string) string {
	return "<!-- hawser-plan " + clustermap.Identifier(clusterset) + " -->"
}

// Markdown writes the plan as a comment of a pull request: disruptive changes, a map before and
// after, and a folded section for each cluster.
func (r *Report) Markdown(w io.Writer) error {
	m := &markdown{}
	name := ""
	if r.Plan != nil {
		name = r.Plan.Name
	}
	m.findings(r)
	if r.Plan != nil {
		if err := m.plan(r); err != nil {
			return err
		}
	}
	m.text("%s\n", Marker(name))
	_, err := io.WriteString(w, m.out.String())
	return err
}

type markdown struct{ out strings.Builder }

func (m *markdown) text(format string, args ...any) { _, _ = fmt.Fprintf(&m.out, format, args...) }

func (m *markdown) findings(r *Report) {
	if len(r.Findings) == 0 {
		return
	}
	title := "Warnings"
	if r.Findings.HasErrors() {
		title = "The topology has errors: nothing was compared"
	}
	m.text("### %s\n\n", title)
	for i, f := range r.annotations() {
		if i == len(r.Findings) || m.out.Len() > maxMarkdown {
			break
		}
		summary, hint, _ := strings.Cut(f.text, "\n")
		m.text("- **%s** %s: %s", f.level, code(fmt.Sprintf("%s:%d", f.file, f.line)), code(summary))
		if hint != "" {
			m.text("<br>%s", code(hint))
		}
		m.text("\n")
	}
	m.text("\n")
}

func (m *markdown) plan(r *Report) error {
	p := r.Plan
	if p.Empty() {
		m.text("### Clusterset %s: no changes\n\n", code(p.Name))
		return nil
	}
	m.text("### Clusterset %s: %d to add, %d to change, %d to destroy\n\n", code(p.Name), p.Summary.Add, p.Summary.Change, p.Summary.Destroy)
	m.disruptions(p)
	if err := m.maps(r); err != nil {
		return err
	}
	for from := 0; from < len(p.Entries); {
		to := from
		for to < len(p.Entries) && p.Entries[to].Cluster == p.Entries[from].Cluster {
			to++
		}
		if m.out.Len() > maxMarkdown {
			m.text("%d more changes are not shown: `hawser diff` prints all.\n\n", len(p.Entries)-from)
			break
		}
		m.section(p.Entries[from:to])
		from = to
	}
	return m.planText(p)
}

// planText writes the output of hawser diff, truncated to the remaining size.
func (m *markdown) planText(p *Plan) error {
	var printed strings.Builder
	if err := p.Print(&printed, false); err != nil {
		return err
	}
	text, limit := sanitize(printed.String(), '\n'), maxMarkdown-m.out.Len()
	if len(text) > limit {
		text = text[:strings.LastIndexByte(text[:max(limit, 0)], '\n')+1] + "...\n"
	}
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	m.text("<details><summary>As text</summary>\n\n%stext\n%s%s\n\n</details>\n\n", fence, text, fence)
	return nil
}

// disruptions writes the disruptive changes, not folded.
func (m *markdown) disruptions(p *Plan) {
	list := p.Disruptions()
	if len(list) == 0 {
		return
	}
	m.text("**Disruptive changes:**\n\n")
	for i, e := range list {
		if m.out.Len() > maxMarkdown/2 {
			m.text("- %d more\n", len(list)-i)
			break
		}
		m.text("- %s %s: %s%s\n", verb(e.Op), code(e.Kind+" "+e.Key), code(e.Disruptive),
			sourceSuffix(&e))
	}
	m.text("\n")
}

// section writes the changes of one cluster, folded.
func (m *markdown) section(entries []Entry) {
	title := "The clusterset"
	if name := entries[0].Cluster; name != "" {
		title = "Cluster <code>" + html.EscapeString(sanitize(name)) + "</code>" // HTML, no Markdown
	}
	plural := "s"
	if len(entries) == 1 {
		plural = ""
	}
	m.text("<details><summary>%s: %d change%s</summary>\n\n", title, len(entries), plural)
	for i := range entries {
		e := &entries[i]
		if m.out.Len() > maxMarkdown {
			m.text("- %d more\n", len(entries)-i)
			break
		}
		m.text("- **%s** %s%s\n", verb(e.Op), code(e.Kind+" "+e.Key), sourceSuffix(e))
		for _, f := range e.Fields {
			switch e.Op {
			case diff.Create:
				m.text("  - %s: %s\n", code(f.Name), code(orNone(f.Want)))
			case diff.Update, diff.Replace:
				m.text("  - %s: %s → %s\n", code(f.Name), code(orNone(f.Have)), code(orNone(f.Want)))
			}
		}
		if e.Remark != "" {
			m.text("  - %s\n", code(e.Remark))
		}
	}
	m.text("\n</details>\n\n")
}

// sourceSuffix returns the position of an entry's cause in parentheses; empty if unknown.
func sourceSuffix(e *Entry) string {
	if e.Source == "" {
		return ""
	}
	return " (" + code(e.Source) + ")"
}

// code returns text as a code span that its content cannot end. Only a run of as many backticks as
// the opening one ends a span.
func code(text string) string {
	text = sanitize(text)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.Trim(text, " ") != text || text == "" {
		text = " " + text + " " // Markdown removes one space at each end
	}
	return fence + text + fence
}
