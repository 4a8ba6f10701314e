package clustermap

import (
	"fmt"

	"hawser.dev/hawser/internal/svg"
)

// SVG draws the map. What the pointer rests on says what it is; colours follow the
// reader's choice of light or dark.
func (m *Map) SVG() string { return m.Drawing().String() }

// Drawing gives the map as a drawing.
func (m *Map) Drawing() *svg.Drawing {
	s := m.drawing()
	d := &svg.Drawing{Width: s.width, Height: s.height, Thin: s.thin,
		About: fmt.Sprintf("%s: %s, %s", s.title, plural(len(m.Clusters), "cluster"), plural(len(m.Links), "link"))}
	if s.sea != nil {
		d.Sea = &svg.Box{X: s.sea.X, Y: s.sea.Y, W: s.sea.W, H: s.sea.H}
	}
	d.Land = outlines(s.land)
	for _, l := range s.leads {
		d.Leads = append(d.Leads, svg.Line{X1: l.x1, Y1: l.y1, X2: l.x2, Y2: l.y2, About: l.about})
	}
	for _, l := range s.lines {
		d.Lines = append(d.Lines, svg.Line{X1: l.x1, Y1: l.y1, X2: l.x2, Y2: l.y2, Tone: svg.Tone(l.tone), About: l.about})
	}
	for _, b := range s.boxes {
		d.Boxes = append(d.Boxes, svg.Box{X: b.x, Y: b.y, W: b.w, H: b.h, Tone: svg.Tone(b.tone), About: b.about})
	}
	for _, c := range s.dots {
		d.Dots = append(d.Dots, svg.Dot{X: c.x, Y: c.y, R: c.r, Tone: svg.Tone(c.tone), About: c.about})
	}
	for _, t := range s.texts {
		d.Texts = append(d.Texts, svg.Text{X: t.x, Y: t.y, Size: t.size, Bold: t.bold, Faint: t.faint, Halo: t.halo, Anchor: t.anchor, Turn: t.turn, Text: t.text})
	}
	return d
}

// Outlines gives the land as svg.Outlines takes it.
func (l *Layout) Outlines() [][][2]float64 { return outlines(l.Land) }

func outlines(land [][]Point) [][][2]float64 {
	out := make([][][2]float64, len(land))
	for i, ring := range land {
		for _, p := range ring {
			out[i] = append(out[i], [2]float64{p.X, p.Y})
		}
	}
	return out
}
