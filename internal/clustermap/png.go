package clustermap

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/f64"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pngScale is how many pixels of a PNG stand for one of the drawing.
const pngScale = 2

// maxPNG bounds the pixels of a PNG, 4 bytes each.
const maxPNG = 64 << 20

// PNG draws the map on white. The error says that the map is too large for one, or what
// w said.
func (m *Map) PNG(w io.Writer) error {
	s := m.drawing()
	c, err := newCanvas(s.width, s.height)
	if err != nil {
		return err
	}
	if s.sea != nil {
		x, y := s.sea.X, s.sea.Y
		c.fill(color.RGBA{0xf3, 0xf6, 0xf9, 0xff}, []point{{x, y}, {x + s.sea.W, y}, {x + s.sea.W, y + s.sea.H}, {x, y + s.sea.H}})
		land := make([][]point, len(s.land))
		for i, ring := range s.land {
			for _, p := range ring {
				land[i] = append(land[i], point{p.X, p.Y})
			}
		}
		c.fill(color.RGBA{0xe3, 0xe8, 0xec, 0xff}, land...)
	}
	for _, l := range s.leads {
		c.stroke(point{l.x1, l.y1}, point{l.x2, l.y2}, 0.6, pngColor(plainTone))
		c.disc(l.x1, l.y1, 3, color.RGBA{0x59, 0x63, 0x6e, 0xff})
	}
	for _, l := range s.lines {
		c.line(l, s.thin)
	}
	for _, b := range s.boxes {
		c.box(b)
	}
	for _, d := range s.dots {
		c.disc(d.x, d.y, d.r, pngColor(d.tone))
	}
	for _, t := range s.texts {
		if err := c.text(t); err != nil {
			return err
		}
	}
	if err := png.Encode(w, c.img); err != nil {
		return fmt.Errorf("write PNG: %w", err)
	}
	return nil
}

type canvas struct {
	img   *image.RGBA
	fonts [2]*opentype.Font // regular and bold
}

func newCanvas(width, height float64) (*canvas, error) {
	w, h := int(math.Ceil(width*pngScale)), int(math.Ceil(height*pngScale))
	if w*h > maxPNG {
		return nil, fmt.Errorf("a PNG of %d by %d pixels is too large: use -o svg, or --focus on one cluster", w, h)
	}
	c := &canvas{img: image.NewRGBA(image.Rect(0, 0, w, h))}
	draw.Draw(c.img, c.img.Bounds(), image.White, image.Point{}, draw.Src)
	for i, raw := range [][]byte{goregular.TTF, gobold.TTF} {
		var err error
		if c.fonts[i], err = opentype.Parse(raw); err != nil {
			return nil, fmt.Errorf("read font: %w", err)
		}
	}
	return c, nil
}

func pngColor(tone int) color.RGBA {
	return [...]color.RGBA{
		{0x8c, 0x95, 0x9f, 0xff}, {0x1a, 0x7f, 0x37, 0xff}, {0x9a, 0x67, 0x00, 0xff}, {0xcf, 0x22, 0x2e, 0xff}, {0xd1, 0xd9, 0xe0, 0xff},
	}[tone]
}

// fill paints what paths enclose. One that goes the other way round inside another is a hole.
func (c *canvas) fill(paint color.Color, paths ...[]point) {
	if len(paths) == 0 {
		return
	}
	least, most := paths[0][0], paths[0][0]
	for _, path := range paths {
		for _, p := range path {
			least = point{min(least.x, p.x), min(least.y, p.y)}
			most = point{max(most.x, p.x), max(most.y, p.y)}
		}
	}
	at := image.Rect(int(least.x*pngScale)-1, int(least.y*pngScale)-1, int(most.x*pngScale)+2, int(most.y*pngScale)+2).Intersect(c.img.Bounds())
	if at.Empty() {
		return
	}
	r := vector.NewRasterizer(at.Dx(), at.Dy())
	for _, path := range paths {
		for i, p := range path {
			x, y := float32(p.x*pngScale)-float32(at.Min.X), float32(p.y*pngScale)-float32(at.Min.Y)
			if i == 0 {
				r.MoveTo(x, y)
			} else {
				r.LineTo(x, y)
			}
		}
		r.ClosePath()
	}
	r.Draw(c.img, at, image.NewUniform(paint), image.Point{})
}

func (c *canvas) disc(x, y, r float64, paint color.Color) {
	const corners = 24
	path := make([]point, corners)
	for i := range path {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		path[i] = point{x + r*cos, y + r*sin}
	}
	c.fill(paint, path)
}

// stroke paints a straight line of a width.
func (c *canvas) stroke(from, to point, width float64, paint color.Color) {
	dx, dy := to.x-from.x, to.y-from.y
	length := math.Hypot(dx, dy)
	if length == 0 {
		return
	}
	nx, ny := -dy/length*width/2, dx/length*width/2
	c.fill(paint, []point{{from.x + nx, from.y + ny}, {to.x + nx, to.y + ny}, {to.x - nx, to.y - ny}, {from.x - nx, from.y - ny}})
}

// line paints a link: dashed where the SVG has dashes.
func (c *canvas) line(l line, thin bool) {
	from, to := point{l.x1, l.y1}, point{l.x2, l.y2}
	on, off, width := 0.0, 0.0, 2.5
	switch l.tone {
	case plainTone:
		if width = 1.5; thin {
			width = 0.6
		}
	case bad:
		on, off = 6, 5
	case dim:
		on, off, width = 2, 4, 1.5
	}
	length := math.Hypot(to.x-from.x, to.y-from.y)
	if on == 0 || length == 0 {
		c.stroke(from, to, width, pngColor(l.tone))
		return
	}
	along := func(d float64) point {
		return point{from.x + (to.x-from.x)*d/length, from.y + (to.y-from.y)*d/length}
	}
	for d := 0.0; d < length; d += on + off {
		c.stroke(along(d), along(min(d+on, length)), width, pngColor(l.tone))
	}
}

func (c *canvas) box(b box) {
	c.fill(color.RGBA{0xf6, 0xf8, 0xfa, 0xff}, []point{{b.x, b.y}, {b.x + b.w, b.y}, {b.x + b.w, b.y + b.h}, {b.x, b.y + b.h}})
	edges := []line{
		{x1: b.x, y1: b.y, x2: b.x + b.w, y2: b.y}, {x1: b.x, y1: b.y + b.h, x2: b.x + b.w, y2: b.y + b.h},
		{x1: b.x, y1: b.y, x2: b.x, y2: b.y + b.h}, {x1: b.x + b.w, y1: b.y, x2: b.x + b.w, y2: b.y + b.h},
	}
	for _, e := range edges {
		e.tone = b.tone
		c.line(e, false)
	}
}

// text writes one line, turned around its beginning.
func (c *canvas) text(t text) error {
	which := 0
	if t.bold {
		which = 1
	}
	face, err := opentype.NewFace(c.fonts[which], &opentype.FaceOptions{Size: t.size * pngScale, DPI: 72})
	if err != nil {
		return fmt.Errorf("make font: %w", err)
	}
	defer func() { _ = face.Close() }()
	paint := color.RGBA{0x1f, 0x23, 0x28, 0xff}
	if t.faint {
		paint = color.RGBA{0x59, 0x63, 0x6e, 0xff}
	}
	d := font.Drawer{Src: image.NewUniform(paint), Face: face}
	width := d.MeasureString(t.text)
	shift := fixed.Int26_6(0)
	switch t.anchor {
	case "middle":
		shift = width / 2
	case "end":
		shift = width
	}
	if t.turn == 0 {
		d.Dst = c.img
		d.Dot = fixed.Point26_6{X: fixed.Int26_6(t.x*pngScale*64) - shift, Y: fixed.Int26_6(t.y * pngScale * 64)}
		d.DrawString(t.text)
		return nil
	}
	up := face.Metrics().Ascent.Ceil()
	line := image.NewRGBA(image.Rect(0, 0, width.Ceil()+2, up+face.Metrics().Descent.Ceil()))
	d.Dst, d.Dot = line, fixed.P(0, up)
	d.DrawString(t.text)
	sin, cos := math.Sincos(t.turn * math.Pi / 180)
	left, top := -float64(shift)/64, -float64(up)
	draw.BiLinear.Transform(c.img, f64.Aff3{
		cos, -sin, t.x*pngScale + left*cos - top*sin,
		sin, cos, t.y*pngScale + left*sin + top*cos,
	}, line, line.Bounds(), draw.Over, nil)
	return nil
}
