package clustermap

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/internal/svg"
)

// Dimensions of a map, in pixels.
const (
	cardWidth  = 220.0
	cardHeight = 92.0
	cardLine   = 17.0  // distance between two lines of text
	margin     = 40.0  // around the map
	spacing    = 60.0  // between two cards on a ring
	dotSpacing = 26.0  // between two dots on a ring
	labelSpace = 150.0 // for the names around a ring of dots
	legendLine = 20.0
	// maxCards is the maximum number of clusters drawn as cards; more are dots with names.
	maxCards = 16
	maxName  = 20 // characters of a dot's name
)

// scene is an unfinished drawing.
type scene struct{ svg.Drawing }

// Position is the position of a cluster in a layout: the centre of its card or dot in pixels, and
// the direction of its name from there, in radians clockwise from the right.
type Position struct{ X, Y, Angle float64 }

// Layout has the positions of a map's clusters in a picture, in pixels.
type Layout struct {
	Places        []Position // in the order of Clusters
	Width, Height float64    // without the legend at the bottom
	Cards         bool       // clusters are cards; otherwise they are dots with names
}

// Layout places the clusters on an ellipse in the order of their names, and hubs on an inner
// ellipse. A new or removed link moves no cluster.
func (m *Map) Layout() Layout {
	cards := len(m.Clusters) <= maxCards
	var inner, outer []int
	for i := range m.Clusters {
		if m.Clusters[i].Hub && len(m.Clusters) > 2 {
			inner = append(inner, i)
		} else {
			outer = append(outer, i)
		}
	}
	step := dotSpacing
	if cards {
		step = cardWidth + spacing
	}
	innerX, innerY := ring(len(inner), step)
	outerX, outerY := ring(len(outer), step)
	if !cards && len(inner) > 1 { // separate the hubs, so that their links can be distinguished
		innerX, innerY = max(innerX, outerX*0.35), max(innerY, outerY*0.35)
	}
	if len(inner) > 0 { // space for the inner ellipse
		outerX = max(outerX, innerX+step)
		outerY = max(outerY, innerY+step*0.75)
	}
	places := make([]Position, len(m.Clusters))
	place := func(members []int, rx, ry float64) {
		for k, i := range members {
			angle := math.Pi + 2*math.Pi*float64(k)/float64(len(members))
			// The conversion rounds: some processors would otherwise keep more digits
			// in the following sum, and draw another picture.
			places[i] = Position{X: float64(rx * math.Cos(angle)), Y: float64(ry * math.Sin(angle)), Angle: angle}
		}
	}
	place(inner, innerX, innerY)
	place(outer, outerX, outerY)

	// Space that a cluster needs around its position.
	around := Position{X: labelSpace, Y: labelSpace}
	if cards {
		around = Position{X: cardWidth / 2, Y: cardHeight / 2}
	}
	low, high := Position{}, Position{}
	for i, p := range places {
		if i == 0 {
			low, high = p, p
		}
		low = Position{X: min(low.X, p.X), Y: min(low.Y, p.Y)}
		high = Position{X: max(high.X, p.X), Y: max(high.Y, p.Y)}
	}
	for i := range places {
		places[i].X += margin + around.X - low.X
		places[i].Y += 2*margin + around.Y - low.Y
	}
	return Layout{Places: places, Cards: cards, Width: max(high.X-low.X+2*(margin+around.X), 520),
		Height: high.Y - low.Y + 3*margin + 2*around.Y}
}

// Drawing draws the map on its layout. Tooltips describe the elements.
func (m *Map) Drawing() *svg.Drawing {
	l := m.Layout()
	places, cards := l.Places, l.Cards
	title := "Clusterset " + m.Clusterset
	s := &scene{svg.Drawing{Width: l.Width, Height: l.Height, Thin: len(m.Clusters) > maxCards,
		Title: fmt.Sprintf("%s: %s, %s", title, humanize.Plural(len(m.Clusters), "cluster"), humanize.Plural(len(m.Links), "link"))}}
	s.Texts = append(s.Texts, svg.Text{X: margin, Y: margin, Size: 18, Bold: true, Anchor: "start", Text: title})
	index := make(map[string]int, len(m.Clusters))
	for i := range m.Clusters {
		index[m.Clusters[i].Name] = i
	}
	for i := range m.Links {
		s.link(&m.Links[i], places[index[m.Links[i].Between[0]]], places[index[m.Links[i].Between[1]]], cards)
	}
	for i := range m.Clusters {
		if cards {
			s.card(&m.Clusters[i], places[i])
		} else {
			s.drawDot(&m.Clusters[i], places[i])
		}
	}
	s.legend(m)
	return &s.Drawing
}

// ring returns the radii of an ellipse on which the members are at least step apart.
func ring(members int, step float64) (rx, ry float64) {
	switch {
	case members < 2:
		return 0, 0
	case members == 2:
		return step * 0.7, 0
	}
	r := step / (2 * math.Sin(math.Pi/float64(members)))
	return r * 1.05, r * 0.85
}

func (s *scene) link(l *Link, from, to Position, labelled bool) {
	over := ""
	if len(l.Uses) > 0 {
		over = "over " + strings.Join(l.Uses, " and ")
	}
	about := appendSome([]string{l.Between[0] + " - " + l.Between[1] + ": " + l.Driver}, l.Change, l.State, over, l.measured())
	s.Lines = append(s.Lines, svg.Line{X1: from.X, Y1: from.Y, X2: to.X, Y2: to.Y, Tone: tone(l.Change, l.State), Title: strings.Join(about, ", ")})
	if label := l.label(); label != "" && labelled {
		s.Texts = append(s.Texts, lineLabel(from, to, label))
	}
}

// lineLabel places a label next to the visible part of a line. It avoids the middle of the line,
// where the labels of opposite clusters would overlap.
func lineLabel(from, to Position, label string) svg.Text {
	dx, dy := to.X-from.X, to.Y-from.Y
	hidden := min(cardWidth/2/max(math.Abs(dx), 1), cardHeight/2/max(math.Abs(dy), 1), 0.5)
	part := hidden + float64((1-2*hidden)*0.42)
	t := svg.Text{X: from.X + float64(dx*part), Y: from.Y + float64(dy*part) - 5, Size: 12, Faint: true, Anchor: "middle", Text: label}
	switch {
	case dx*dy < 0: // the line rises to the right
		t.X, t.Y, t.Anchor = t.X+8, t.Y+15, "start"
	case math.Abs(dy) > 1:
		t.X, t.Anchor = t.X+8, "start"
	}
	return t
}

func (s *scene) card(c *Cluster, at Position) {
	x, y := at.X-cardWidth/2, at.Y-cardHeight/2
	s.Boxes = append(s.Boxes, svg.Box{X: x, Y: y, W: cardWidth, H: cardHeight, Tone: tone(c.Change, c.State), Title: c.about()})
	lines := c.lines()
	s.Texts = append(s.Texts, svg.Text{X: x + 12, Y: y + 22, Size: 14, Bold: true, Anchor: "start", Text: truncate(lines[0], 18)})
	for i, l := range lines[1:] {
		s.Texts = append(s.Texts, svg.Text{X: x + 12, Y: y + 22 + float64(i+1)*cardLine, Size: 12, Faint: true, Anchor: "start", Text: truncate(l, 32)})
	}
	s.Texts = append(s.Texts, svg.Text{X: x + cardWidth - 12, Y: y + 22, Size: 12, Faint: true, Anchor: "end", Text: humanize.Plural(c.Exports, "export")})
	const pitch = 46.0
	for i := range c.Gateways {
		g := &c.Gateways[i]
		if i == 4 && len(c.Gateways) > 4 {
			s.Texts = append(s.Texts, svg.Text{X: x + 12 + 4*pitch, Y: y + cardHeight - 10, Size: 11, Faint: true, Anchor: "start",
				Text: fmt.Sprintf("+%d", len(c.Gateways)-4)})
			break
		}
		gx, gy := x+18+float64(i)*pitch, y+cardHeight-14
		s.Dots = append(s.Dots, svg.Dot{X: gx, Y: gy, R: 5, Tone: tone(g.Change, g.State), Title: g.about()})
		s.Texts = append(s.Texts, svg.Text{X: gx + 9, Y: gy + 4, Size: 11, Faint: true, Anchor: "start", Text: truncate(Identifier(g.Name), 5)})
	}
}

// drawDot draws a cluster as a dot with its name, which reads outwards from the centre.
func (s *scene) drawDot(c *Cluster, at Position) {
	r := 5.0
	if c.Hub {
		r = 9
	}
	s.Dots = append(s.Dots, svg.Dot{X: at.X, Y: at.Y, R: r, Tone: tone(c.Change, c.State), Title: c.about()})
	if c.Hub { // on the inner ellipse, where there is space above
		s.Texts = append(s.Texts, svg.Text{X: at.X, Y: at.Y - r - 5, Size: 14, Bold: true, Anchor: "middle", Text: truncate(Identifier(c.Name), maxName)})
		return
	}
	rotation, anchor := at.Angle*180/math.Pi, "start"
	if math.Cos(at.Angle) < 0 {
		rotation, anchor = rotation+180, "end"
	}
	s.Texts = append(s.Texts, svg.Text{X: at.X + float64((r+6)*math.Cos(at.Angle)), Y: at.Y + float64((r+6)*math.Sin(at.Angle)) + 4, Size: 12, Anchor: anchor,
		Rotation: math.Mod(rotation, 360), Text: truncate(Identifier(c.Name), maxName)})
}

// legend draws the legend of the colours in use.
func (s *scene) legend(m *Map) {
	changes, states := map[svg.Tone]string{}, map[svg.Tone]string{}
	record := func(change, state string) {
		switch {
		case change != "":
			changes[tone(change, "")] = change
		case state != "":
			states[tone("", state)] = state
		}
	}
	for i := range m.Clusters {
		record(m.Clusters[i].Change, m.Clusters[i].State)
		for _, g := range m.Clusters[i].Gateways {
			record(g.Change, g.State)
		}
	}
	for i := range m.Links {
		record(m.Links[i].Change, m.Links[i].State)
	}
	for _, t := range []svg.Tone{svg.Good, svg.Fair, svg.Bad, svg.Dim} {
		for _, names := range []map[svg.Tone]string{changes, states} {
			if names[t] == "" {
				continue
			}
			s.Dots = append(s.Dots, svg.Dot{X: margin + 5, Y: s.Height - 4, R: 5, Tone: t})
			s.legendText(names[t], margin+18)
		}
	}
	if m.MeshImplied {
		s.legendText("every two clusters are linked; drawn are the links that differ", margin)
	}
	if m.Omitted > 0 {
		s.legendText(fmt.Sprintf("and %s more", humanize.Plural(m.Omitted, "cluster")), margin)
	}
	s.Height += margin / 2
}

func (s *scene) legendText(what string, x float64) {
	s.Texts = append(s.Texts, svg.Text{X: x, Y: s.Height, Size: 12, Faint: true, Anchor: "start", Text: what})
	s.Height += legendLine
}

func (c *Cluster) about() string {
	lines := append(c.lines(), humanize.Plural(c.Exports, "export"))
	return strings.Join(appendSome(lines, c.Change, c.State), ", ")
}

func (g *Gateway) about() string {
	parts := []string{"gateway " + g.Name + " on " + cmp.Or(g.Node, "a node that labels pick")}
	if len(g.Endpoints) > 0 {
		parts = append(parts, strings.Join(g.Endpoints, " "))
	}
	return strings.Join(appendSome(parts, g.Change, g.State), ", ")
}

// appendSome appends the non-empty strings.
func appendSome(to []string, more ...string) []string {
	for _, m := range more {
		if m != "" {
			to = append(to, m)
		}
	}
	return to
}

// truncate shortens a text of single-byte characters.
func truncate(text string, high int) string {
	if len(text) <= high {
		return text
	}
	return text[:high-1] + "…"
}
