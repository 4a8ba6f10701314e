package plan

import (
	"bufio"
	"fmt"
	"io"

	"hawser.dev/hawser/internal/diff"
)

// Terminal colours (ECMA-48 SGR).
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// printer writes a plan. It writes escape sequences only with color.
type printer struct {
	out   *bufio.Writer
	color bool
}

// Print writes the plan as text. It returns the first error of w.
func (p *Plan) Print(w io.Writer, color bool) error {
	out := &printer{out: bufio.NewWriter(w), color: color}
	if p.Empty() {
		out.text("No changes.\n")
		return out.out.Flush()
	}
	section := ""
	for i, g := range p.Groups() {
		if heading := g.heading(p.Name); heading != section {
			if i > 0 {
				out.text("\n")
			}
			section = heading
			out.text("%s\n", out.paint(bold, section))
		}
		out.group(&g)
	}
	if list := p.Disruptions(); len(list) > 0 {
		out.text("\n%s\n", out.paint(bold+red, "Disruptive changes:"))
		for _, g := range groupEntries(list, func(e *Entry) string { return fmt.Sprintf("%s %q %s", e.Op, e.Kind, e.Disruptive) }) {
			out.text("  %s %s: %s\n", out.mark(g.Entries[0].Op), g.Title(), g.Entries[0].Disruptive)
		}
	}
	out.access(&p.Access)
	out.firewall(&p.Firewall)
	out.impact(&p.Impact)
	out.text("\nPlan: %d to add, %d to change, %d to destroy.", p.Summary.Add, p.Summary.Change, p.Summary.Destroy)
	if n := p.Summary.Disruptive; n > 0 {
		out.text(" %d disruptive.", n)
	}
	out.text("\n")
	return out.out.Flush()
}

func (o *printer) text(format string, args ...any) { _, _ = fmt.Fprintf(o.out, format, args...) }

func (o *printer) paint(color, text string) string {
	if !o.color {
		return text
	}
	return color + text + plain
}

func (o *printer) mark(op diff.Op) string {
	color := map[diff.Op]string{diff.Create: green, diff.Delete: red, diff.Update: yellow, diff.Replace: yellow}[op]
	return o.paint(color, string(op))
}

func (o *printer) group(g *Group) {
	e := &g.Entries[0]
	o.text("  %s %s", o.mark(e.Op), g.Title())
	switch {
	case e.Source != "":
		o.text("  # %s", e.Source)
	case e.Path != "" && len(g.Entries) == 1:
		o.text("  # %s", e.Path)
	}
	o.text("\n")
	if e.Op != diff.Delete {
		for _, f := range e.Fields {
			o.field(e, f)
		}
	}
	if e.Remark != "" {
		o.text("      (%s)\n", e.Remark)
	}
}

func (o *printer) field(e *Entry, f Field) {
	if e.Op == diff.Create {
		o.text("      %s: %s\n", f.Name, f.Want)
		return
	}
	o.text("      %s: %s -> %s", f.Name, orNone(f.Have), orNone(f.Want))
	if f.Forces {
		o.text("  %s", o.paint(red, "# forces replacement"))
	}
	if f.Source != "" && f.Source != e.Source {
		o.text("  # %s", f.Source)
	}
	o.text("\n")
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return text
}
