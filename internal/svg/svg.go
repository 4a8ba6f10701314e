// Package svg renders drawings of boxes, lines, dots and texts as SVG that a page can embed.
// Drawings follow the light or dark colour scheme of the reader, need no script, and contain no
// markup from texts. The package does no I/O.
package svg

import (
	"fmt"
	"html"
	"strings"
	"unicode"
)

// Tone is the colour of an element.
type Tone int

// Tones.
const (
	Plain Tone = iota
	Good
	Fair
	Bad
	Dim // unknown
)

// Drawing is a picture of bands, lines, boxes, dots and texts, listed from back to front. All
// lengths are in pixels.
type Drawing struct {
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	Title  string  `json:"about"`           // text for screen readers
	Thin   bool    `json:"thin,omitempty"`  // thin lines; thick lines would hide everything
	Bands  []Box   `json:"bands,omitempty"` // behind everything
	Lines  []Line  `json:"lines,omitempty"`
	Boxes  []Box   `json:"boxes,omitempty"`
	Dots   []Dot   `json:"dots,omitempty"`
	Texts  []Text  `json:"texts,omitempty"`
}

// Point is a position in a drawing.
type Point struct{ X, Y float64 }

// Line is a straight line.
type Line struct {
	X1    float64 `json:"x1"`
	Y1    float64 `json:"y1"`
	X2    float64 `json:"x2"`
	Y2    float64 `json:"y2"`
	Tone  Tone    `json:"tone,omitzero"`
	Arrow bool    `json:"arrow,omitempty"` // at X2, Y2
	Title string  `json:"about,omitempty"` // tooltip
}

// Box is a rectangle; X and Y are its upper left corner.
type Box struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	W     float64 `json:"w"`
	H     float64 `json:"h"`
	Tone  Tone    `json:"tone,omitzero"`
	Title string  `json:"about,omitempty"`
}

// Dot is a disc.
type Dot struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	R     float64 `json:"r"`
	Tone  Tone    `json:"tone,omitzero"`
	Title string  `json:"about,omitempty"`
}

// Text is one line of text; Y is its baseline.
type Text struct {
	X        float64 `json:"x"`
	Y        float64 `json:"y"`
	Size     float64 `json:"size"`
	Bold     bool    `json:"bold,omitempty"`
	Faint    bool    `json:"faint,omitempty"`
	Mono     bool    `json:"mono,omitempty"` // monospaced font
	Tone     Tone    `json:"tone,omitzero"`
	Anchor   string  `json:"anchor"`             // start, middle or end
	Rotation float64 `json:"rotation,omitempty"` // degrees, around X and Y
	Text     string  `json:"text"`
}

// Style is the CSS of all drawings, for light and dark pages.
const Style = `
text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.faint{fill:#59636e}.back{fill:#fff}
.box{fill:#f6f8fa;stroke:#8c959f;stroke-width:1.5}
.link{stroke:#8c959f;stroke-width:1.5}.thin.link{stroke-width:.6}
.dot{fill:#8c959f}
.good.box,.good.link{stroke:#1a7f37;stroke-width:2.5}.good.dot{fill:#1a7f37}
.fair.box,.fair.link{stroke:#9a6700;stroke-width:2.5}.fair.dot{fill:#9a6700}
.bad.box,.bad.link{stroke:#cf222e;stroke-width:2.5;stroke-dasharray:6 5}.bad.dot{fill:#cf222e}
.dim.box,.dim.link{stroke:#8c959f;stroke-dasharray:2 4}.dim.dot{fill:#d1d9e0}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}.faint{fill:#9198a1}.back{fill:#0d1117}.box{fill:#151b23;stroke:#656c76}
.link{stroke:#656c76}.dot{fill:#656c76}
.good.box,.good.link{stroke:#3fb950}.good.dot{fill:#3fb950}
.fair.box,.fair.link{stroke:#d29922}.fair.dot{fill:#d29922}
.bad.box,.bad.link{stroke:#f85149}.bad.dot{fill:#f85149}
}
`

// ExtraStyle is the CSS of elements that only some drawings have.
const ExtraStyle = `
.band{fill:#f6f8fa}.mono{font-family:ui-monospace,SFMono-Regular,Menlo,monospace}
.bad.box{stroke-dasharray:none}text.bad{fill:#cf222e}text.good{fill:#1a7f37}text.fair{fill:#9a6700}
.step.box{fill:#fff}.tip{fill:#8c959f}.bad.tip{fill:#cf222e}.good.tip{fill:#1a7f37}.fair.tip{fill:#9a6700}
@media (prefers-color-scheme:dark){
.band{fill:#151b23}text.bad{fill:#f85149}text.good{fill:#3fb950}text.fair{fill:#d29922}
.step.box{fill:#0d1117}.tip{fill:#656c76}.bad.tip{fill:#f85149}.good.tip{fill:#3fb950}.fair.tip{fill:#d29922}
}
`

// String returns the drawing as an SVG document.
func (d *Drawing) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n",
		d.Width, d.Height, d.Width, d.Height, Escape(d.Title))
	out.WriteString("<style>" + Style + "</style>\n")
	if d.needsExtraStyle() {
		out.WriteString("<style>" + ExtraStyle + "</style>\n")
	}
	fmt.Fprintf(&out, `<rect class="back" width="%.0f" height="%.0f"/>`+"\n", d.Width, d.Height)
	d.elements(&out)
	out.WriteString("</svg>\n")
	return out.String()
}

// needsExtraStyle reports whether the drawing needs ExtraStyle.
func (d *Drawing) needsExtraStyle() bool {
	for i := range d.Lines {
		if d.Lines[i].Arrow {
			return true
		}
	}
	return len(d.Bands) > 0
}

func (d *Drawing) elements(out *strings.Builder) {
	thin, step := "", ""
	if d.Thin {
		thin = "thin "
	}
	if d.needsExtraStyle() {
		step = "step "
	}
	for _, b := range d.Bands {
		fmt.Fprintf(out, `<rect class="band" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8"/>`+"\n", b.X, b.Y, b.W, b.H)
	}
	for _, l := range d.Lines {
		fmt.Fprintf(out, `<line class="%s%slink" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f">%s</line>`+"\n", thin, l.Tone.class(), l.X1, l.Y1, l.X2, l.Y2, title(l.Title))
		if l.Arrow {
			out.WriteString(arrowHead(l))
		}
	}
	for _, b := range d.Boxes {
		fmt.Fprintf(out, `<rect class="%s%sbox" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8">%s</rect>`+"\n", step, b.Tone.class(), b.X, b.Y, b.W, b.H, title(b.Title))
	}
	for _, c := range d.Dots {
		fmt.Fprintf(out, `<circle class="%sdot" cx="%.1f" cy="%.1f" r="%.0f">%s</circle>`+"\n", c.Tone.class(), c.X, c.Y, c.R, title(c.Title))
	}
	for _, t := range d.Texts {
		t.write(out)
	}
}

func (t *Text) write(out *strings.Builder) {
	class, weight, transform := strings.TrimSpace(t.Tone.class()), "", ""
	if t.Faint {
		class = strings.TrimSpace(class + " faint")
	}
	if t.Mono {
		class = strings.TrimSpace(class + " mono")
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	if t.Bold {
		weight = ` font-weight="600"`
	}
	if t.Rotation != 0 {
		transform = fmt.Sprintf(` transform="rotate(%.1f %.1f %.1f)"`, t.Rotation, t.X, t.Y)
	}
	fmt.Fprintf(out, `<text%s x="%.1f" y="%.1f" font-size="%.0f"%s text-anchor="%s"%s>%s</text>`+"\n",
		class, t.X, t.Y, t.Size, weight, t.Anchor, transform, Escape(t.Text))
}

// arrowHead returns the head of a horizontal or vertical arrow.
func arrowHead(l Line) string {
	const head, half = 9.0, 4.5
	x, y := l.X2, l.Y2
	points := ""
	switch {
	case l.X2 > l.X1 && l.Y1 == l.Y2:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-head, y-half, x-head, y+half)
	case l.X2 < l.X1 && l.Y1 == l.Y2:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x+head, y-half, x+head, y+half)
	case l.Y2 < l.Y1:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-half, y+head, x+half, y+head)
	default:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-half, y-head, x+half, y-head)
	}
	return fmt.Sprintf(`<polygon class="%stip" points="%s"/>`+"\n", l.Tone.class(), points)
}

// MarshalText returns the CSS class of a tone: good, fair, bad or dim; empty for Plain.
func (t Tone) MarshalText() ([]byte, error) { return []byte(strings.TrimSpace(t.class())), nil }

func (t Tone) class() string { return [...]string{"", "good ", "fair ", "bad ", "dim "}[t] }

func title(text string) string {
	if text == "" {
		return ""
	}
	return "<title>" + Escape(text) + "</title>"
}

// Escape escapes a text for HTML. Characters that are invalid in XML, that change the direction of
// text, or that are invisible, become spaces.
func Escape(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, text))
}
