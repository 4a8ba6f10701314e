package clustermap

import (
	"fmt"
	"html"
	"strings"
)

// svgStyle has the colours of the drawing, for light and dark pages.
const svgStyle = `<style>
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
</style>
`

// SVG draws the map. What the pointer rests on says what it is; colours follow the
// reader's choice of light or dark.
func (m *Map) SVG() string {
	s := m.drawing()
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n",
		s.width, s.height, s.width, s.height, svgText(fmt.Sprintf("%s: %s, %s", s.title, plural(len(m.Clusters), "cluster"), plural(len(m.Links), "link"))))
	out.WriteString(svgStyle)
	fmt.Fprintf(&out, `<rect class="back" width="%.0f" height="%.0f"/>`+"\n", s.width, s.height)
	thin := ""
	if s.thin {
		thin = "thin "
	}
	for _, l := range s.lines {
		fmt.Fprintf(&out, `<line class="%s%slink" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f">%s</line>`+"\n", thin, svgTone(l.tone), l.x1, l.y1, l.x2, l.y2, svgTitle(l.about))
	}
	for _, b := range s.boxes {
		fmt.Fprintf(&out, `<rect class="%sbox" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="8">%s</rect>`+"\n", svgTone(b.tone), b.x, b.y, b.w, b.h, svgTitle(b.about))
	}
	for _, d := range s.dots {
		fmt.Fprintf(&out, `<circle class="%sdot" cx="%.1f" cy="%.1f" r="%.0f">%s</circle>`+"\n", svgTone(d.tone), d.x, d.y, d.r, svgTitle(d.about))
	}
	for _, t := range s.texts {
		class, weight, turn := "", "", ""
		if t.faint {
			class = ` class="faint"`
		}
		if t.bold {
			weight = ` font-weight="600"`
		}
		if t.turn != 0 {
			turn = fmt.Sprintf(` transform="rotate(%.1f %.1f %.1f)"`, t.turn, t.x, t.y)
		}
		fmt.Fprintf(&out, `<text%s x="%.1f" y="%.1f" font-size="%.0f"%s text-anchor="%s"%s>%s</text>`+"\n",
			class, t.x, t.y, t.size, weight, t.anchor, turn, svgText(t.text))
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func svgTone(tone int) string { return [...]string{"", "good ", "fair ", "bad ", "dim "}[tone] }

func svgTitle(about string) string {
	if about == "" {
		return ""
	}
	return "<title>" + svgText(about) + "</title>"
}

// svgText quotes a text; control characters, which XML does not have, become spaces.
func svgText(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, text))
}
