package clustermap

import (
	"cmp"
	"math"
	"slices"

	"hawser.dev/hawser/internal/coast"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/schema/fabric"
)

// What a map of the world measures.
const (
	leastWidth  = 40.0   // degrees of latitude that are shown from west to east at least
	roomAround  = 0.15   // of the extent of all clusters, on each side
	leastPixels = 1100.0 // how wide it is at least
	// How much larger than all cards or names together it is.
	cardRoom, nameRoom = 3, 4
	nameHeight         = 20.0
	letterWidth        = 7.0
	besideWidth        = 110.0 // of what stands above clusters without a location
	dotSide            = 10.0  // what a dot takes to the left of its middle
	// maxWorldCards is up to how many clusters have cards: more would hide the world.
	maxWorldCards = 6
)

// view is the part of the world that is shown: a middle, and how many degrees of latitude a
// picture is wide and high. Degrees of longitude are as long as they are on the middle's
// latitude (an equirectangular projection).
type view struct {
	longitude, latitude, width, height float64
	shrunk                             float64 // how long a degree of longitude is, of one of latitude
}

// viewOf shows all places, and no more of the rest of the world than it takes to see where
// they are. The line where the map is cut goes where the clusters leave the widest gap.
func viewOf(places []fabric.Location) view {
	east := make([]float64, len(places)) // of the western end
	for i, p := range places {
		east[i] = p.Longitude
	}
	slices.Sort(east)
	west, widest := east[0], 360-(east[len(east)-1]-east[0])
	for i := 1; i < len(east); i++ {
		if gap := east[i] - east[i-1]; gap > widest {
			west, widest = east[i], gap
		}
	}
	span := 360 - widest
	south, north := places[0].Latitude, places[0].Latitude
	for _, p := range places {
		south, north = min(south, p.Latitude), max(north, p.Latitude)
	}
	v := view{longitude: math.Mod(west+span/2+180, 360) - 180, latitude: float64((south + north) / 2)}
	v.shrunk = max(math.Cos(float64(v.latitude*math.Pi/180)), 0.3)
	v.width = max(float64(span*v.shrunk)*(1+2*roomAround), leastWidth)
	v.height = (north - south) * (1 + 2*roomAround)
	// Neither a strip nor a tower.
	v.height = max(v.height, v.width/2.2)
	v.width = max(v.width, v.height*1.3)
	v.width = min(v.width, max(360*v.shrunk, v.height*1.3))
	// Not beyond a pole, where there is something to show on the other side.
	if v.height <= 180 {
		v.latitude = min(max(v.latitude, -90+v.height/2), 90-v.height/2)
	}
	return v
}

// on gives where a place is in a frame, in whole pixels: what follows from it is then the
// same on every processor.
func (v view) on(frame svg.Box, longitude, latitude float64) svg.Point {
	scale := frame.W / v.width
	return svg.Point{
		X: math.Round(frame.X + frame.W/2 + float64(v.east(longitude)*v.shrunk)*scale),
		Y: math.Round(frame.Y + frame.H/2 - float64((latitude-v.latitude)*scale)),
	}
}

// east gives how far east of the middle a longitude is, -180 to 180.
func (v view) east(longitude float64) float64 {
	return math.Mod(math.Mod(longitude-v.longitude+180, 360)+360, 360) - 180
}

// land gives what there is of the land in a frame, as outlines.
func (v view) land(frame svg.Box) [][]svg.Point {
	scale := frame.W / v.width
	var out [][]svg.Point
	for _, ring := range coast.Rings() {
		for _, turn := range []float64{-360, 0, 360} {
			path := make([]svg.Point, len(ring))
			for i, p := range ring {
				path[i] = svg.Point{
					X: frame.X + frame.W/2 + float64((p.Longitude+turn-v.longitude)*v.shrunk)*scale,
					Y: frame.Y + frame.H/2 - float64((p.Latitude-v.latitude)*scale),
				}
			}
			for i := range path {
				path[i] = svg.Point{X: math.Round(path[i].X), Y: math.Round(path[i].Y)}
			}
			if path = clip(slices.Compact(path), frame); len(path) > 2 {
				out = append(out, path)
			}
		}
	}
	return out
}

// clip cuts an outline at the edges of a frame (Sutherland and Hodgman, Reentrant Polygon
// Clipping, 1974).
func clip(path []svg.Point, frame svg.Box) []svg.Point {
	for _, edge := range []struct {
		inside func(p svg.Point) bool
		meet   func(a, b svg.Point) svg.Point
	}{
		{func(p svg.Point) bool { return p.X >= frame.X }, func(a, b svg.Point) svg.Point { return atX(a, b, frame.X) }},
		{func(p svg.Point) bool { return p.X <= frame.X+frame.W }, func(a, b svg.Point) svg.Point { return atX(a, b, frame.X+frame.W) }},
		{func(p svg.Point) bool { return p.Y >= frame.Y }, func(a, b svg.Point) svg.Point { return atY(a, b, frame.Y) }},
		{func(p svg.Point) bool { return p.Y <= frame.Y+frame.H }, func(a, b svg.Point) svg.Point { return atY(a, b, frame.Y+frame.H) }},
	} {
		var kept []svg.Point
		for i, p := range path {
			before := path[(i+len(path)-1)%len(path)]
			if edge.inside(p) != edge.inside(before) {
				kept = append(kept, edge.meet(before, p))
			}
			if edge.inside(p) {
				kept = append(kept, p)
			}
		}
		path = kept
	}
	return slices.Compact(path)
}

func atX(a, b svg.Point, x float64) svg.Point {
	return svg.Point{X: x, Y: math.Round(a.Y + float64((b.Y-a.Y)*(x-a.X)/(b.X-a.X)))}
}

func atY(a, b svg.Point, y float64) svg.Point {
	return svg.Point{X: math.Round(a.X + float64((b.X-a.X)*(y-a.Y)/(b.Y-a.Y))), Y: y}
}

// world places clusters on a map of the world, and those without a location beside it.
func (m *Map) world() Layout {
	out := Layout{Cards: len(m.Clusters) <= maxWorldCards, Places: make([]Place, len(m.Clusters))}
	var there, beside []int
	var places []fabric.Location
	longest := 0
	for i := range m.Clusters {
		longest = max(longest, min(len(m.Clusters[i].Name), maxName))
		if l := m.Clusters[i].Location; l != nil { // kept on the globe, whoever wrote the fabric
			there = append(there, i)
			places = append(places, fabric.Location{Latitude: min(max(l.Latitude, -90), 90), Longitude: min(max(l.Longitude, -180), 180)})
		} else {
			beside = append(beside, i)
		}
	}
	// What a cluster takes, and how much of it is to the left of its place.
	item, left, room := svg.Point{X: cardWidth + spacing/2, Y: cardHeight + spacing/2}, cardWidth/2+spacing/4, cardRoom
	if !out.Cards {
		item, left, room = svg.Point{X: 2*dotSide + float64(longest)*letterWidth, Y: nameHeight}, dotSide, nameRoom
	}

	v := viewOf(places)
	aspect := v.width / v.height
	area := float64(len(there)*room) * item.X * item.Y
	frame := svg.Box{X: margin, Y: 2 * margin, W: math.Round(max(leastPixels, math.Sqrt(area*aspect)))}
	frame.H = math.Round(max(frame.W/aspect, item.Y))
	wanted := make([]svg.Point, len(there))
	for k, p := range places {
		wanted[k] = v.on(frame, p.Longitude, p.Latitude)
	}
	for k, at := range spread(wanted, item, left, frame) {
		place := Place{X: at.X, Y: at.Y}
		// A card hides the place that it is over.
		if pin := wanted[k]; pin != at && (!out.Cards || math.Abs(pin.X-at.X) > cardWidth/2 || math.Abs(pin.Y-at.Y) > cardHeight/2) {
			place.Pin = &pin
		}
		out.Places[there[k]] = place
	}
	out.Frame, out.Land = &frame, v.land(frame)
	out.Width, out.Height = frame.X+frame.W+margin, frame.Y+frame.H+margin

	rows := max(1, int(frame.H/item.Y))
	for k, i := range beside {
		out.Places[i] = Place{X: out.Width + left + float64(k/rows)*item.X, Y: frame.Y + item.Y/2 + float64(k%rows)*item.Y}
	}
	if len(beside) > 0 {
		out.Beside = &svg.Point{X: out.Width, Y: frame.Y - 10}
		out.Width += max(float64((len(beside)+rows-1)/rows)*item.X, besideWidth) + margin
	}
	return out
}

// spread moves things of one size apart, so that none hides another: each takes the place
// that it wants, or the nearest free one in steps of half its size, in the order given. Left is
// how much of a thing is to the left of its place; they stay in the frame if there is room.
func spread(wanted []svg.Point, size svg.Point, left float64, frame svg.Box) []svg.Point {
	w, h := int(size.X), int(size.Y)
	halfW, halfH := w/2, h/2
	columns, rows := int(frame.W)/halfW+1, int(frame.H)/halfH+1
	type step struct{ x, y int }
	steps := make([]step, 0, (2*columns+1)*(2*rows+1))
	for x := -columns; x <= columns; x++ {
		for y := -rows; y <= rows; y++ {
			steps = append(steps, step{x * halfW, y * halfH})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.x*a.x+a.y*a.y, b.x*b.x+b.y*b.y), cmp.Compare(a.y, b.y), cmp.Compare(a.x, b.x))
	})
	within := func(p svg.Point) bool {
		return p.X-left >= frame.X && p.X-left+size.X <= frame.X+frame.W && p.Y-size.Y/2 >= frame.Y && p.Y+size.Y/2 <= frame.Y+frame.H
	}
	taken := map[step][]svg.Point{} // by cells of the size of a thing
	cell := func(p svg.Point) step { return step{int(p.X) / w, int(p.Y) / h} }
	free := func(p svg.Point) bool {
		at := cell(p)
		for x := at.x - 1; x <= at.x+1; x++ {
			for y := at.y - 1; y <= at.y+1; y++ {
				for _, o := range taken[step{x, y}] {
					if math.Abs(o.X-p.X) < float64(w) && math.Abs(o.Y-p.Y) < float64(h) {
						return false
					}
				}
			}
		}
		return true
	}
	out := make([]svg.Point, len(wanted))
	tried := map[svg.Point]int{} // steps from a place that are taken, and stay so
	for i, p := range wanted {
		// Whose name or card would be cut off moves inwards first.
		p.X = min(max(p.X, math.Ceil(frame.X+left)), math.Floor(frame.X+frame.W-size.X+left))
		p.Y = min(max(p.Y, math.Ceil(frame.Y+size.Y/2)), math.Floor(frame.Y+frame.H-size.Y/2))
		out[i] = p
		for ; tried[p] < len(steps); tried[p]++ {
			s := steps[tried[p]]
			if at := (svg.Point{X: p.X + float64(s.x), Y: p.Y + float64(s.y)}); within(at) && free(at) {
				out[i] = at
				break
			}
		}
		taken[cell(out[i])] = append(taken[cell(out[i])], out[i])
	}
	return out
}
