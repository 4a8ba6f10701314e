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

	"hawser.dev/hawser/internal/svg"
)

// pngScale is how many pixels of a PNG stand for one of the drawing.
const pngScale = 2

// maxPNG bounds the pixels of a PNG, 4 bytes each.
const maxPNG = 64 << 20

// PNG draws the map on white. The error says that the map is too large for one, or what
// w said.
func (m *Map) PNG(w io.Writer) error {
	d := m.Drawing()
	c, err := newCanvas(d.Width, d.Height)
	if err != nil {
		return err
	}
	if sea := d.Sea; sea != nil {
		c.fill(color.RGBA{0xf3, 0xf6, 0xf9, 0xff}, corners(*sea))
		c.fill(color.RGBA{0xe3, 0xe8, 0xec, 0xff}, d.Land...)
	}
	for _, l := range d.Leads {
		c.stroke(svg.Point{X: l.X1, Y: l.Y1}, svg.Point{X: l.X2, Y: l.Y2}, 0.6, pngColor(svg.Plain))
		c.disc(l.X1, l.Y1, 3, color.RGBA{0x59, 0x63, 0x6e, 0xff})
	}
	for _, l := range d.Lines {
		c.line(l, d.Thin)
	}
	for _, b := range d.Boxes {
		path := corners(b)
		c.fill(color.RGBA{0xf6, 0xf8, 0xfa, 0xff}, path)
		for _, edge := range [][2]int{{0, 1}, {3, 2}, {0, 3}, {1, 2}} {
			from, to := path[edge[0]], path[edge[1]]
			c.line(svg.Line{X1: from.X, Y1: from.Y, X2: to.X, Y2: to.Y, Tone: b.Tone}, false)
		}
	}
	for _, d := range d.Dots {
		c.disc(d.X, d.Y, d.R, pngColor(d.Tone))
	}
	for _, t := range d.Texts {
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

func pngColor(tone svg.Tone) color.RGBA {
	return [...]color.RGBA{
		{0x8c, 0x95, 0x9f, 0xff}, {0x1a, 0x7f, 0x37, 0xff}, {0x9a, 0x67, 0x00, 0xff}, {0xcf, 0x22, 0x2e, 0xff}, {0xd1, 0xd9, 0xe0, 0xff},
	}[tone]
}

// fill paints what paths enclose. One that goes the other way round inside another is a hole.
func (c *canvas) fill(paint color.Color, paths ...[]svg.Point) {
	if len(paths) == 0 {
		return
	}
	least, most := paths[0][0], paths[0][0]
	for _, path := range paths {
		for _, p := range path {
			least = svg.Point{X: min(least.X, p.X), Y: min(least.Y, p.Y)}
			most = svg.Point{X: max(most.X, p.X), Y: max(most.Y, p.Y)}
		}
	}
	at := image.Rect(int(least.X*pngScale)-1, int(least.Y*pngScale)-1, int(most.X*pngScale)+2, int(most.Y*pngScale)+2).Intersect(c.img.Bounds())
	if at.Empty() {
		return
	}
	r := vector.NewRasterizer(at.Dx(), at.Dy())
	for _, path := range paths {
		for i, p := range path {
			x, y := float32(p.X*pngScale)-float32(at.Min.X), float32(p.Y*pngScale)-float32(at.Min.Y)
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
	path := make([]svg.Point, corners)
	for i := range path {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		path[i] = svg.Point{X: x + r*cos, Y: y + r*sin}
	}
	c.fill(paint, path)
}

// stroke paints a straight line of a width.
func (c *canvas) stroke(from, to svg.Point, width float64, paint color.Color) {
	dx, dy := to.X-from.X, to.Y-from.Y
	length := math.Hypot(dx, dy)
	if length == 0 {
		return
	}
	nx, ny := -dy/length*width/2, dx/length*width/2
	c.fill(paint, []svg.Point{{X: from.X + nx, Y: from.Y + ny}, {X: to.X + nx, Y: to.Y + ny},
		{X: to.X - nx, Y: to.Y - ny}, {X: from.X - nx, Y: from.Y - ny}})
}

// line paints a link: dashed where the SVG has dashes.
func (c *canvas) line(l svg.Line, thin bool) {
	from, to := svg.Point{X: l.X1, Y: l.Y1}, svg.Point{X: l.X2, Y: l.Y2}
	on, off, width := 0.0, 0.0, 2.5
	switch l.Tone {
	case svg.Plain:
		if width = 1.5; thin {
			width = 0.6
		}
	case svg.Bad:
		on, off = 6, 5
	case svg.Dim:
		on, off, width = 2, 4, 1.5
	}
	length := math.Hypot(to.X-from.X, to.Y-from.Y)
	if on == 0 || length == 0 {
		c.stroke(from, to, width, pngColor(l.Tone))
		return
	}
	along := func(d float64) svg.Point {
		return svg.Point{X: from.X + (to.X-from.X)*d/length, Y: from.Y + (to.Y-from.Y)*d/length}
	}
	for d := 0.0; d < length; d += on + off {
		c.stroke(along(d), along(min(d+on, length)), width, pngColor(l.Tone))
	}
}

func corners(b svg.Box) []svg.Point {
	return []svg.Point{{X: b.X, Y: b.Y}, {X: b.X + b.W, Y: b.Y}, {X: b.X + b.W, Y: b.Y + b.H}, {X: b.X, Y: b.Y + b.H}}
}

// text writes one line, turned around its beginning.
func (c *canvas) text(t svg.Text) error {
	which := 0
	if t.Bold {
		which = 1
	}
	face, err := opentype.NewFace(c.fonts[which], &opentype.FaceOptions{Size: t.Size * pngScale, DPI: 72})
	if err != nil {
		return fmt.Errorf("make font: %w", err)
	}
	defer func() { _ = face.Close() }()
	paint := color.RGBA{0x1f, 0x23, 0x28, 0xff}
	if t.Faint {
		paint = color.RGBA{0x59, 0x63, 0x6e, 0xff}
	}
	d := font.Drawer{Src: image.NewUniform(paint), Face: face}
	width := d.MeasureString(t.Text)
	shift := fixed.Int26_6(0)
	switch t.Anchor {
	case "middle":
		shift = width / 2
	case "end":
		shift = width
	}
	if t.Turn == 0 {
		d.Dst = c.img
		d.Dot = fixed.Point26_6{X: fixed.Int26_6(t.X*pngScale*64) - shift, Y: fixed.Int26_6(t.Y * pngScale * 64)}
		d.DrawString(t.Text)
		return nil
	}
	up := face.Metrics().Ascent.Ceil()
	line := image.NewRGBA(image.Rect(0, 0, width.Ceil()+2, up+face.Metrics().Descent.Ceil()))
	d.Dst, d.Dot = line, fixed.P(0, up)
	d.DrawString(t.Text)
	sin, cos := math.Sincos(t.Turn * math.Pi / 180)
	left, top := -float64(shift)/64, -float64(up)
	draw.BiLinear.Transform(c.img, f64.Aff3{
		cos, -sin, t.X*pngScale + left*cos - top*sin,
		sin, cos, t.Y*pngScale + left*sin + top*cos,
	}, line, line.Bounds(), draw.Over, nil)
	return nil
}
