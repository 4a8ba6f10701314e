// Package webpage is the frame of pages that need no server: one file with everything in it,
// which a browser lets load nothing and run nothing. It is pure.
package webpage

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/svg"
)

// Section is a part of a page.
type Section struct {
	ID    string // of its heading, to link to: letters, digits and -
	Title string
	Body  string // markup, in which everything that others named is escaped (svg.Escape)
}

// style is of every page, for light and dark readers, and for paper.
const style = `
:root{color-scheme:light dark;--text:#1f2328;--faint:#59636e;--back:#fff;--box:#f6f8fa;--line:#d1d9e0;--good:#1a7f37;--fair:#9a6700;--bad:#cf222e;--goodback:#dafbe1;--badback:#ffebe9;--fairback:#fff8c5}
@media (prefers-color-scheme:dark){:root{--text:#f0f6fc;--faint:#9198a1;--back:#0d1117;--box:#151b23;--line:#3d444d;--good:#3fb950;--fair:#d29922;--bad:#f85149;--goodback:#12261e;--badback:#25171c;--fairback:#272115}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:24px;background:var(--back);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px;border-bottom:1px solid var(--line);padding-bottom:6px}h3{font-size:15px;margin:20px 0 6px}
p{margin:6px 0}.faint,.lead{color:var(--faint)}nav a{margin-right:14px}a{color:inherit}
.wide{overflow-x:auto}svg{max-width:100%;height:auto}
table{border-collapse:collapse;font-size:13px}th,td{border:1px solid var(--line);padding:5px 9px;text-align:left;vertical-align:top}
th{background:var(--box);font-weight:600}td.yes{background:var(--goodback)}td.no{background:var(--badback)}td.unsure{background:var(--fairback)}
.good{color:var(--good)}.fair{color:var(--fair)}.bad{color:var(--bad)}
code,.mono{font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}
details summary{cursor:pointer}td small,th small{display:block;color:var(--faint);font-weight:400}
@media print{body{max-width:none;padding:0}details[open] summary{display:none}}
`

// Page gives a page. Lead is one line of text below the title.
func Page(title, lead string, sections []Section) string {
	var out strings.Builder
	out.WriteString("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	fmt.Fprintf(&out, `<meta http-equiv="Content-Security-Policy" content="%s">`+"\n", policy(style, svg.Style, svg.More))
	out.WriteString(`<meta name="referrer" content="no-referrer">` + "\n" + `<meta name="viewport" content="width=device-width, initial-scale=1">` + "\n")
	fmt.Fprintf(&out, "<title>%s</title>\n<style>%s</style>\n<style>%s</style>\n<style>%s</style>\n</head>\n<body>\n", svg.Escape(title), style, svg.Style, svg.More)
	fmt.Fprintf(&out, "<h1>%s</h1>\n<p class=\"lead\">%s</p>\n", svg.Escape(title), svg.Escape(lead))
	if len(sections) > 1 {
		out.WriteString("<nav>")
		for _, s := range sections {
			fmt.Fprintf(&out, `<a href="#%s">%s</a>`, svg.Escape(s.ID), svg.Escape(s.Title))
		}
		out.WriteString("</nav>\n")
	}
	for _, s := range sections {
		fmt.Fprintf(&out, "<h2 id=\"%s\">%s</h2>\n%s", svg.Escape(s.ID), svg.Escape(s.Title), s.Body)
	}
	out.WriteString("</body>\n</html>\n")
	return out.String()
}

// policy has browsers take the styles of the frame and nothing else (CSP Level 3): no
// script, no picture, no font, no frame, no form and no request.
func policy(styles ...string) string {
	out := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src"
	for _, s := range styles {
		sum := sha256.Sum256([]byte(s))
		out += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return out
}

// Table is a table of texts; a cell that is empty stays so.
type Table struct {
	Head []string
	Rows [][]Cell
}

// Cell is one of a table.
type Cell struct {
	Text  string
	Small string // below it, smaller
	Class string // of the frame's style: yes, no, unsure, good, fair, bad, mono; empty: none
	About string // shown where the pointer rests
}

// Plain gives cells of texts.
func Plain(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, t := range texts {
		out[i] = Cell{Text: t}
	}
	return out
}

// String gives the markup of the table; none for one without rows.
func (t Table) String() string {
	if len(t.Rows) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("<div class=\"wide\"><table>\n<tr>")
	for _, h := range t.Head {
		fmt.Fprintf(&out, "<th>%s</th>", svg.Escape(h))
	}
	out.WriteString("</tr>\n")
	for _, row := range t.Rows {
		out.WriteString("<tr>")
		for _, c := range row {
			out.WriteString("<td")
			if c.Class != "" {
				out.WriteString(` class="` + svg.Escape(c.Class) + `"`)
			}
			if c.About != "" {
				out.WriteString(` title="` + svg.Escape(c.About) + `"`)
			}
			out.WriteString(">" + svg.Escape(c.Text))
			if c.Small != "" {
				out.WriteString("<small>" + svg.Escape(c.Small) + "</small>")
			}
			out.WriteString("</td>")
		}
		out.WriteString("</tr>\n")
	}
	out.WriteString("</table></div>\n")
	return out.String()
}

// Paragraph gives the markup of a paragraph of text, with a class of the frame's style.
func Paragraph(class, format string, args ...any) string {
	return fmt.Sprintf("<p class=\"%s\">%s</p>\n", svg.Escape(class), svg.Escape(fmt.Sprintf(format, args...)))
}

// Figure gives the markup of a drawing.
func Figure(d *svg.Drawing) string { return "<div class=\"wide\">" + d.Inline() + "</div>\n" }
