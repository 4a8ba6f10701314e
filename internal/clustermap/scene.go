package clustermap

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// What a map measures, in pixels.
const (
	cardWidth  = 220.0
	cardHeight = 92.0
	cardLine   = 17.0  // from one line of text to the next
	margin     = 40.0  // around all
	spacing    = 60.0  // between two cards on a ring
	dotSpacing = 26.0  // between two dots on a ring
	labelSpace = 150.0 // for the names around a ring of dots
	legendLine = 20.0
	// maxCards is how many clusters are drawn as cards; more are dots with names.
	maxCards = 16
	maxName  = 20 // characters of a name beside a dot
)

type point struct{ x, y float64 }

// scene is a drawing: what it is made of, from the back to the front.
type scene struct {
	width, height float64
	title         string
	thin          bool // so many lines that thick ones would hide everything
	sea           *Rect
	land          [][]Point // outlines
	leads         []line    // from where a cluster is to where it is drawn
	lines         []line
	boxes         []box
	dots          []dot
	texts         []text
}

type line struct {
	x1, y1, x2, y2 float64
	tone           int
	about          string // shown where the pointer rests
}

type box struct {
	x, y, w, h float64 // x and y are its left upper corner
	tone       int
	about      string
}

type dot struct {
	x, y, r float64
	tone    int
	about   string
}

type text struct {
	x, y   float64 // y is the base line
	size   float64
	bold   bool
	faint  bool
	halo   bool
	anchor string  // start, middle or end
	turn   float64 // degrees, around x and y
	text   string
}

// Place is where the layout has a cluster: the middle of its card or dot, in pixels, and
// the direction of its name from there, in radians clockwise from the right. Pin is where it
// would be if there were room; nil = there.
type Place struct {
	X, Y, Angle float64
	Pin         *Point
}

// Layout is where the clusters of a map are in a picture, in pixels.
type Layout struct {
	Places        []Place // in the order of Clusters
	Width, Height float64 // below is no room for a legend yet
	Cards         bool    // there is room for a card each, else they are dots with names
	// Frame is the map of the world, nil = there is none, and Land what is land on it, as
	// outlines that are filled by the rule of even and odd.
	Frame *Rect
	Land  [][]Point
	// Beside is where clusters without a location begin, nil = there are none.
	Beside *Point
}

// Layout places a map: on a map of the world, where a cluster has a location; otherwise on
// an ellipse in the order of the names, hubs on one inside. A link that comes or goes moves
// nothing.
func (m *Map) Layout() Layout {
	if m.located() {
		return m.world()
	}
	places, width, height, cards := m.rings()
	return Layout{Places: places, Width: width, Height: height, Cards: cards}
}

func (m *Map) rings() (places []Place, width, height float64, cards bool) {
	cards = len(m.Clusters) <= maxCards
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
	innerX, innerY := ring(len(inner), step, 0)
	outerX, outerY := ring(len(outer), step, 0)
	if !cards && len(inner) > 1 { // hubs apart, so that one sees whose links are whose
		innerX, innerY = max(innerX, outerX*0.35), max(innerY, outerY*0.35)
	}
	if len(inner) > 0 { // room for the ring inside
		outerX = max(outerX, innerX+step)
		outerY = max(outerY, innerY+step*0.75)
	}
	places = make([]Place, len(m.Clusters))
	put := func(members []int, rx, ry float64) {
		for k, i := range members {
			angle := math.Pi + 2*math.Pi*float64(k)/float64(len(members))
			// Rounded here, or some processors would keep more digits in the sum that follows,
			// and draw another picture.
			places[i] = Place{X: float64(rx * math.Cos(angle)), Y: float64(ry * math.Sin(angle)), Angle: angle}
		}
	}
	put(inner, innerX, innerY)
	put(outer, outerX, outerY)

	// What a cluster takes around its place.
	around := Place{X: labelSpace, Y: labelSpace}
	if cards {
		around = Place{X: cardWidth / 2, Y: cardHeight / 2}
	}
	least, most := Place{}, Place{}
	for i, p := range places {
		if i == 0 {
			least, most = p, p
		}
		least = Place{X: min(least.X, p.X), Y: min(least.Y, p.Y)}
		most = Place{X: max(most.X, p.X), Y: max(most.Y, p.Y)}
	}
	for i := range places {
		places[i].X += margin + around.X - least.X
		places[i].Y += 2*margin + around.Y - least.Y
	}
	width = max(most.X-least.X+2*(margin+around.X), 520)
	height = most.Y - least.Y + 3*margin + 2*around.Y
	return places, width, height, cards
}

// drawing draws a map on its layout.
func (m *Map) drawing() *scene {
	l := m.Layout()
	places, cards := l.Places, l.Cards
	s := &scene{title: "Clusterset " + m.Clusterset, thin: len(m.Clusters) > maxCards, width: l.Width, height: l.Height, sea: l.Frame, land: l.Land}

	s.texts = append(s.texts, text{x: margin, y: margin, size: 18, bold: true, anchor: "start", text: s.title})
	if l.Beside != nil {
		s.texts = append(s.texts, text{x: l.Beside.X, y: l.Beside.Y, size: 12, faint: true, anchor: "start", text: "without a location"})
	}
	for i, p := range places {
		if p.Pin != nil {
			s.leads = append(s.leads, line{x1: p.Pin.X, y1: p.Pin.Y, x2: p.X, y2: p.Y, about: m.Clusters[i].Name})
		}
	}
	at := make(map[string]int, len(m.Clusters))
	for i := range m.Clusters {
		at[m.Clusters[i].Name] = i
	}
	for i := range m.Links {
		s.link(&m.Links[i], places[at[m.Links[i].Between[0]]], places[at[m.Links[i].Between[1]]], cards)
	}
	for i := range m.Clusters {
		if cards {
			s.card(&m.Clusters[i], places[i])
		} else {
			s.spot(&m.Clusters[i], places[i])
		}
	}
	s.legend(m)
	return s
}

// ring gives the radii of an ellipse on which as many members lie at least step apart.
func ring(members int, step, least float64) (rx, ry float64) {
	switch {
	case members < 2:
		return least, least
	case members == 2:
		return step * 0.7, 0
	}
	r := max(least, step/(2*math.Sin(math.Pi/float64(members))))
	return r * 1.05, r * 0.85
}

func (s *scene) link(l *Link, from, to Place, labelled bool) {
	about := []string{l.Between[0] + " - " + l.Between[1] + ": " + l.Driver}
	about = appendSome(about, l.Change, l.State)
	if len(l.Uses) > 0 {
		about = append(about, "over "+strings.Join(l.Uses, " and "))
	}
	if label := l.measured(); label != "" {
		about = append(about, label)
	}
	s.lines = append(s.lines, line{from.X, from.Y, to.X, to.Y, tone(l.Change, l.State), strings.Join(about, ", ")})
	if label := l.label(); label != "" && labelled {
		s.texts = append(s.texts, beside(from, to, label))
	}
}

// beside places a label at the part of a line that no card hides, on the side where the line
// does not go. Not in the middle, where those of opposite clusters would meet.
func beside(from, to Place, label string) text {
	dx, dy := to.X-from.X, to.Y-from.Y
	hidden := min(cardWidth/2/max(math.Abs(dx), 1), cardHeight/2/max(math.Abs(dy), 1), 0.5)
	part := hidden + float64((1-2*hidden)*0.42)
	t := text{x: from.X + float64(dx*part), y: from.Y + float64(dy*part) - 5, size: 12, faint: true, anchor: "middle", text: label}
	switch {
	case dx*dy < 0: // to the right it goes up
		t.x, t.y, t.anchor = t.x+8, t.y+15, "start"
	case math.Abs(dy) > 1:
		t.x, t.anchor = t.x+8, "start"
	}
	return t
}

func (s *scene) card(c *Cluster, at Place) {
	x, y := at.X-cardWidth/2, at.Y-cardHeight/2
	s.boxes = append(s.boxes, box{x, y, cardWidth, cardHeight, tone(c.Change, c.State), c.about()})
	lines := c.lines()
	s.texts = append(s.texts, text{x: x + 12, y: y + 22, size: 14, bold: true, anchor: "start", text: cut(lines[0], 18)})
	for i, l := range lines[1:] {
		s.texts = append(s.texts, text{x: x + 12, y: y + 22 + float64(i+1)*cardLine, size: 12, faint: true, anchor: "start", text: cut(l, 32)})
	}
	s.texts = append(s.texts, text{x: x + cardWidth - 12, y: y + 22, size: 12, faint: true, anchor: "end", text: plural(c.Exports, "export")})
	const pitch = 46.0
	for i := range c.Gateways {
		g := &c.Gateways[i]
		if i == 4 && len(c.Gateways) > 4 {
			s.texts = append(s.texts, text{x: x + 12 + 4*pitch, y: y + cardHeight - 10, size: 11, faint: true, anchor: "start",
				text: fmt.Sprintf("+%d", len(c.Gateways)-4)})
			break
		}
		gx, gy := x+18+float64(i)*pitch, y+cardHeight-14
		s.dots = append(s.dots, dot{gx, gy, 5, tone(g.Change, g.State), g.about()})
		s.texts = append(s.texts, text{x: gx + 9, y: gy + 4, size: 11, faint: true, anchor: "start", text: cut(Identifier(g.Name), 5)})
	}
}

// spot draws a cluster as a dot with its name beside it, read from the centre outwards.
func (s *scene) spot(c *Cluster, at Place) {
	r := 5.0
	if c.Hub {
		r = 9
	}
	s.dots = append(s.dots, dot{at.X, at.Y, r, tone(c.Change, c.State), c.about()})
	if c.Hub && s.sea == nil { // on a ring inside, where there is room above
		s.texts = append(s.texts, text{x: at.X, y: at.Y - r - 5, size: 14, bold: true, anchor: "middle", text: cut(Identifier(c.Name), maxName)})
		return
	}
	turn, anchor := at.Angle*180/math.Pi, "start"
	if math.Cos(at.Angle) < 0 {
		turn, anchor = turn+180, "end"
	}
	s.texts = append(s.texts, text{x: at.X + float64((r+6)*math.Cos(at.Angle)), y: at.Y + float64((r+6)*math.Sin(at.Angle)) + 4, size: 12, anchor: anchor, halo: s.sea != nil,
		turn: math.Mod(turn, 360), text: cut(Identifier(c.Name), maxName)})
}

// legend says what the colours mean, of those that are there.
func (s *scene) legend(m *Map) {
	compared, asked := map[int]string{}, map[int]string{}
	note := func(change, state string) {
		switch {
		case change != "":
			compared[tone(change, "")] = change
		case state != "":
			asked[tone("", state)] = state
		}
	}
	for i := range m.Clusters {
		note(m.Clusters[i].Change, m.Clusters[i].State)
		for _, g := range m.Clusters[i].Gateways {
			note(g.Change, g.State)
		}
	}
	for i := range m.Links {
		note(m.Links[i].Change, m.Links[i].State)
	}
	for _, t := range []int{good, fair, bad, dim} {
		for _, names := range []map[int]string{compared, asked} {
			if names[t] == "" {
				continue
			}
			s.dots = append(s.dots, dot{margin + 5, s.height - 4, 5, t, ""})
			s.legendText(names[t], margin+18)
		}
	}
	if m.Implied {
		s.legendText("every two clusters are linked; drawn are the links that differ", margin)
	}
	if m.More > 0 {
		s.legendText(fmt.Sprintf("and %s more", plural(m.More, "cluster")), margin)
	}
	s.height += margin / 2
}

func (s *scene) legendText(what string, x float64) {
	s.texts = append(s.texts, text{x: x, y: s.height, size: 12, faint: true, anchor: "start", text: what})
	s.height += legendLine
}

// measured is what probes say of a link.
func (l *Link) measured() string {
	plain := *l
	plain.Driver = "wireguard"
	return plain.label()
}

func (c *Cluster) about() string {
	lines := append(c.lines(), plural(c.Exports, "export"))
	return strings.Join(appendSome(lines, c.Change, c.State), ", ")
}

func (g *Gateway) about() string {
	parts := []string{"gateway " + g.Name + " on " + cmp.Or(g.Node, "a node that labels pick")}
	if len(g.Endpoints) > 0 {
		parts = append(parts, strings.Join(g.Endpoints, " "))
	}
	return strings.Join(appendSome(parts, g.Change, g.State), ", ")
}

// appendSome adds what is not empty.
func appendSome(to []string, more ...string) []string {
	for _, m := range more {
		if m != "" {
			to = append(to, m)
		}
	}
	return to
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// cut shortens a text of one-byte characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most-1] + "…"
}
