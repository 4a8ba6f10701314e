// Package swimlane draws the path of packets as swimlanes: one lane per node and one row per event,
// with the rule where a packet ended in red. It is pure.
package swimlane

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"hawser.dev/hawser/internal/svg"
)

// Event is an event on the path of packets.
type Event struct {
	Swimlane string   // a node, or another object with its own lane
	Texts    []string // description, the first line in bold
	Tone     svg.Tone // svg.Bad where the packets ended
	Via      string   // how they arrived; empty if in the same lane or unknown
}

// Path is a path of packets.
type Path struct {
	Title  string
	Tone   svg.Tone // of the title: whether the packets arrived
	Events []Event
}

// Dimensions of a drawing, in pixels.
const (
	margin       = 24.0
	laneGap      = 16.0
	minLaneWidth = 190.0
	maxLaneWidth = 340.0
	laneHeader   = 34.0 // of a lane
	rowGap       = 30.0 // between two rows, for the arrows
	lineSpace    = 17.0
	pad          = 10.0
	charWidth    = 6.7 // approximate, of a text of size 12
	maxLines     = 8   // of an event
)

// Draw draws the paths one below the other.
func Draw(title string, paths []Path) *svg.Drawing {
	d := &svg.Drawing{Title: fmt.Sprintf("%s: %d paths", title, len(paths))}
	if len(paths) == 1 {
		d.Title = title + ": 1 way"
	}
	y := margin
	if title != "" {
		d.Texts = append(d.Texts, svg.Text{X: margin, Y: y + 14, Size: 18, Bold: true, Anchor: "start", Text: title})
		d.Width = margin*2 + float64(utf8.RuneCountInString(title))*10
		y += 40
	}
	for i := range paths {
		y = paths[i].draw(d, y) + margin
	}
	d.Height = y
	d.Width = max(d.Width, 520)
	return d
}

// Lanes returns the lanes of a path in the order of their first events.
func (w *Path) Lanes() []string {
	var out []string
	for _, s := range w.Events {
		if !slices.Contains(out, s.Swimlane) {
			out = append(out, s.Swimlane)
		}
	}
	return out
}

// draw adds a path to a drawing at height y and returns the height where it ends.
func (w *Path) draw(d *svg.Drawing, y float64) float64 {
	for _, line := range wrap(w.Title, 110) {
		d.Texts = append(d.Texts, svg.Text{X: margin, Y: y + 14, Size: 14, Bold: true, Tone: w.Tone, Anchor: "start", Text: line})
		d.Width = max(d.Width, margin*2+float64(utf8.RuneCountInString(line))*8)
		y += 20
	}
	y += 6
	names := w.Lanes()
	if len(names) == 0 {
		return y
	}
	width := w.width()
	left := func(lane string) float64 {
		return margin + float64(slices.Index(names, lane))*(width+laneGap)
	}
	d.Width = max(d.Width, left(names[len(names)-1])+width+margin)
	bands := len(d.Bands)
	for _, name := range names {
		d.Bands = append(d.Bands, svg.Box{X: left(name), Y: y, W: width})
		d.Texts = append(d.Texts, svg.Text{X: left(name) + width/2, Y: y + 22, Size: 13, Bold: true, Anchor: "middle",
			Text: clip(name, int((width-2*pad)/7.6))})
	}
	top := y
	y += laneHeader
	from, bottom := "", 0.0 // lane and bottom of the previous event
	for i := range w.Events {
		s := &w.Events[i]
		lines := s.lines(width)
		height := 2*pad + float64(len(lines))*lineSpace - 4
		x := left(s.Swimlane) + pad/2
		if from != "" {
			arrow(d, left(from)+width/2, bottom, left(s.Swimlane)+width/2, y, s)
		}
		d.Boxes = append(d.Boxes, svg.Box{X: x, Y: y, W: width - pad, H: height, Tone: s.Tone, Title: strings.Join(s.Texts, "; ")})
		tone := svg.Plain
		if s.Tone == svg.Bad {
			tone = svg.Bad
		}
		for k, l := range lines {
			d.Texts = append(d.Texts, svg.Text{X: x + pad, Y: y + pad + 10 + float64(k)*lineSpace, Size: 12, Bold: l.bold, Faint: !l.bold && s.Tone != svg.Bad,
				Tone: tone, Anchor: "start", Text: l.text})
		}
		from, bottom = s.Swimlane, y+height
		y = bottom + rowGap
	}
	y += pad - rowGap
	for i := bands; i < len(d.Bands); i++ {
		d.Bands[i].H = y - top
	}
	return y
}

// arrow draws an arrow from an event to the next event, with its Via as label.
func arrow(d *svg.Drawing, x1, y1, x2, y2 float64, to *Event) {
	if x1 == x2 {
		d.Lines = append(d.Lines, svg.Line{X1: x1, Y1: y1, X2: x2, Y2: y2, Tone: to.Tone, Arrow: true, Title: to.Via})
	} else {
		middle := y1 + (y2-y1)*0.6
		d.Lines = append(d.Lines, svg.Line{X1: x1, Y1: y1, X2: x1, Y2: middle, Tone: to.Tone, Title: to.Via},
			svg.Line{X1: x1, Y1: middle, X2: x2, Y2: middle, Tone: to.Tone, Title: to.Via},
			svg.Line{X1: x2, Y1: middle, X2: x2, Y2: y2, Tone: to.Tone, Arrow: true, Title: to.Via})
	}
	if to.Via == "" {
		return
	}
	if x1 == x2 {
		d.Texts = append(d.Texts, svg.Text{X: x1 + 8, Y: y1 + (y2-y1)/2 + 4, Size: 11, Faint: true, Anchor: "start", Text: clip(to.Via, 40)})
		return
	}
	space := max(x1-x2, x2-x1) / 6.2
	d.Texts = append(d.Texts, svg.Text{X: (x1 + x2) / 2, Y: y1 + (y2-y1)*0.6 - 5, Size: 11, Faint: true, Anchor: "middle", Text: clip(to.Via, int(space))})
}

// width returns the width of a path's lanes: the width of the longest text, within limits.
func (w *Path) width() float64 {
	widest := minLaneWidth
	for _, s := range w.Events {
		for _, t := range append([]string{s.Swimlane}, s.Texts...) {
			widest = max(widest, float64(utf8.RuneCountInString(t))*charWidth+4*pad)
		}
	}
	return min(widest, maxLaneWidth)
}

type line struct {
	text string
	bold bool
}

// lines returns the lines of an event in a lane of the width. The tooltip shows text that does not
// fit.
func (s *Event) lines(width float64) []line {
	var out []line
	for i, t := range s.Texts {
		for _, l := range wrap(t, int((width-4*pad)/charWidth)) {
			if len(out) == maxLines {
				out[maxLines-1].text = clip(out[maxLines-1].text+" …", int((width-4*pad)/charWidth))
				return out
			}
			out = append(out, line{l, i == 0})
		}
	}
	return out
}

// wrap breaks a text into lines of at most maxRunes characters, at spaces if possible.
func wrap(text string, maxRunes int) []string {
	maxRunes = max(maxRunes, 8)
	var out []string
	now := ""
	for _, word := range strings.Fields(text) {
		for utf8.RuneCountInString(word) > maxRunes {
			if now != "" {
				out, now = append(out, now), ""
			}
			runes := []rune(word)
			out, word = append(out, string(runes[:maxRunes])), string(runes[maxRunes:])
		}
		switch {
		case now == "":
			now = word
		case utf8.RuneCountInString(now)+1+utf8.RuneCountInString(word) <= maxRunes:
			now += " " + word
		default:
			out, now = append(out, now), word
		}
	}
	if now != "" {
		out = append(out, now)
	}
	return out
}

// clip shortens a text.
func clip(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= max(most, 2) {
		return text
	}
	return string(runes[:max(most, 2)-1]) + "…"
}
