// Package svg writes drawings as SVG that a page can hold: boxes, lines, dots and texts in
// the colours of the reader's choice of light or dark, without a script, and with nothing
// of a text as markup. It is pure.
package svg

import (
	"fmt"
	"html"
	"strings"
	"unicode"
)

// Tone is the colour of something drawn.
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
// measures are pixels.
type Drawing struct {
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	About  string  `json:"about"`           // text for screen readers
	Thin   bool    `json:"thin,omitempty"`  // thin lines: thick ones would hide everything
	Bands  []Box   `json:"bands,omitempty"` // behind everything
	Lines  []Line  `json:"lines,omitempty"`
	Boxes  []Box   `json:"boxes,omitempty"`
	Dots   []Dot   `json:"dots,omitempty"`
	Texts  []Text  `json:"texts,omitempty"`
}

// Point is a place in a drawing.
type Point struct{ X, Y float64 }

// Line is a straight line.
type Line struct {
	X1    float64 `json:"x1"`
	Y1    float64 `json:"y1"`
	X2    float64 `json:"x2"`
	Y2    float64 `json:"y2"`
	Tone  Tone    `json:"tone,omitzero"`
	Arrow bool    `json:"arrow,omitempty"` // at its second end
	About string  `json:"about,omitempty"` // shown where the pointer rests
}

// Box is a rectangle; X and Y are its left upper corner.
type Box struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	W     float64 `json:"w"`
	H     float64 `json:"h"`
	Tone  Tone    `json:"tone,omitzero"`
	About string  `json:"about,omitempty"`
}

// Dot is a disc.
type Dot struct {
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
	R     float64 `json:"r"`
	Tone  Tone    `json:"tone,omitzero"`
	About string  `json:"about,omitempty"`
}

// Text is one line of text; Y is its base line.
type Text struct {
	X        float64 `json:"x"`
	Y        float64 `json:"y"`
	Size     float64 `json:"size"`
	Bold     bool    `json:"bold,omitempty"`
	Faint    bool    `json:"faint,omitempty"`
	Mono     bool    `json:"mono,omitempty"` // characters of one width
	Tone     Tone    `json:"tone,omitzero"`
	Anchor   string  `json:"anchor"`             // start, middle or end
	Rotation float64 `json:"rotation,omitempty"` // degrees, around X and Y
	Text     string  `json:"text"`
}

// Style has the colours of all drawings, for light and dark pages: the text of a style
// element.
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

// More has the colours of what only some drawings have.
const More = `
.band{fill:#f6f8fa}.mono{font-family:ui-monospace,SFMono-Regular,Menlo,monospace}
.bad.box{stroke-dasharray:none}text.bad{fill:#cf222e}text.good{fill:#1a7f37}text.fair{fill:#9a6700}
.step.box{fill:#fff}.tip{fill:#8c959f}.bad.tip{fill:#cf222e}.good.tip{fill:#1a7f37}.fair.tip{fill:#9a6700}
@media (prefers-color-scheme:dark){
.band{fill:#151b23}text.bad{fill:#f85149}text.good{fill:#3fb950}text.fair{fill:#d29922}
.step.box{fill:#0d1117}.tip{fill:#656c76}.bad.tip{fill:#f85149}.good.tip{fill:#3fb950}.fair.tip{fill:#d29922}
}
`

// String returns the drawing as a document of its own.
func (d *Drawing) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n",
		d.Width, d.Height, d.Width, d.Height, Escape(d.About))
	out.WriteString("<style>" + Style + "</style>\n")
	if d.more() {
		out.WriteString("<style>" + More + "</style>\n")
	}
	fmt.Fprintf(&out, `<rect class="back" width="%.0f" height="%.0f"/>`+"\n", d.Width, d.Height)
	d.elements(&out)
	out.WriteString("</svg>\n")
	return out.String()
}

// more reports whether the drawing has what More is for.
func (d *Drawing) more() bool {
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
	if d.more() {
		step = "step "
	}
	for _, b := range d.Bands {
		fmt.Fprintf(out, `<rect class="band" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8"/>`+"\n", b.X, b.Y, b.W, b.H)
	}
	for _, l := range d.Lines {
		fmt.Fprintf(out, `<line class="%s%slink" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f">%s</line>`+"\n", thin, l.Tone.class(), l.X1, l.Y1, l.X2, l.Y2, title(l.About))
		if l.Arrow {
			out.WriteString(arrowHead(l))
		}
	}
	for _, b := range d.Boxes {
		fmt.Fprintf(out, `<rect class="%s%sbox" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8">%s</rect>`+"\n", step, b.Tone.class(), b.X, b.Y, b.W, b.H, title(b.About))
	}
	for _, c := range d.Dots {
		fmt.Fprintf(out, `<circle class="%sdot" cx="%.1f" cy="%.1f" r="%.0f">%s</circle>`+"\n", c.Tone.class(), c.X, c.Y, c.R, title(c.About))
	}
	for _, t := range d.Texts {
		t.write(out)
	}
}

func (t *Text) write(out *strings.Builder) {
	class, weight, turn := strings.TrimSpace(t.Tone.class()), "", ""
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
		turn = fmt.Sprintf(` transform="rotate(%.1f %.1f %.1f)"`, t.Rotation, t.X, t.Y)
	}
	fmt.Fprintf(out, `<text%s x="%.1f" y="%.1f" font-size="%.0f"%s text-anchor="%s"%s>%s</text>`+"\n",
		class, t.X, t.Y, t.Size, weight, t.Anchor, turn, Escape(t.Text))
}

// arrowHead is the head of an arrow that is level or upright.
func arrowHead(l Line) string {
	const long, half = 9.0, 4.5
	x, y := l.X2, l.Y2
	points := ""
	switch {
	case l.X2 > l.X1 && l.Y1 == l.Y2:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-long, y-half, x-long, y+half)
	case l.X2 < l.X1 && l.Y1 == l.Y2:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x+long, y-half, x+long, y+half)
	case l.Y2 < l.Y1:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-half, y+long, x+half, y+long)
	default:
		points = fmt.Sprintf("%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y, x-half, y-long, x+half, y-long)
	}
	return fmt.Sprintf(`<polygon class="%stip" points="%s"/>`+"\n", l.Tone.class(), points)
}

// MarshalText writes a tone as the class of an element: good, fair, bad or dim; empty for Plain.
func (t Tone) MarshalText() ([]byte, error) { return []byte(strings.TrimSpace(t.class())), nil }

func (t Tone) class() string { return [...]string{"", "good ", "fair ", "bad ", "dim "}[t] }

func title(about string) string {
	if about == "" {
		return ""
	}
	return "<title>" + Escape(about) + "</title>"
}

// Escape quotes a text for a page. What XML does not have, and what would turn the order of
// the characters around or hide some, becomes a space.
func Escape(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, text))
}
