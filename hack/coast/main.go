// Command coast reads the land of the world as TopoJSON and writes it as internal/coast has
// it: a line a ring, in tenths of degrees. Its argument says where the land is from.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "coast:", err)
		os.Exit(1)
	}
}

// topology is what is used of TopoJSON (github.com/topojson/topojson-specification): arcs are
// lists of points, each relative to the one before it, that rings of polygons are joined from.
type topology struct {
	Transform struct{ Scale, Translate [2]float64 }
	Arcs      [][][2]float64
	Objects   struct {
		Land struct {
			Geometries []struct {
				Type string
				Arcs [][][]int // polygon, ring, arc; ^n is arc n backwards
			}
		}
	}
}

type point [2]int // longitude and latitude in tenths of degrees

func run(source string, in io.Reader, out io.Writer) error {
	var t topology
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return fmt.Errorf("read TopoJSON: %w", err)
	}
	w := bufio.NewWriter(out)
	_, _ = fmt.Fprintf(w, "# Land of the world: Natural Earth, 1:110m (public domain), by %s. hack/coast.sh writes this file.\n"+
		"# A line is a ring: longitude and latitude of a point in tenths of degrees, and what each next one adds.\n", source)
	for _, g := range t.Objects.Land.Geometries {
		if g.Type != "MultiPolygon" {
			return fmt.Errorf("land is a %s, not a MultiPolygon", g.Type)
		}
		for _, rings := range g.Arcs {
			for _, ring := range rings {
				write(w, t.ring(ring))
			}
		}
	}
	return w.Flush()
}

// ring joins arcs. Points that are the same in tenths of degrees become one.
func (t *topology) ring(arcs []int) []point {
	var out []point
	for _, n := range arcs {
		at := n
		if n < 0 {
			at = ^n
		}
		var x, y float64
		var arc []point
		for _, p := range t.Arcs[at] {
			x, y = x+p[0], y+p[1]
			arc = append(arc, point{
				int(math.Round((x*t.Transform.Scale[0] + t.Transform.Translate[0]) * 10)),
				int(math.Round((y*t.Transform.Scale[1] + t.Transform.Translate[1]) * 10)),
			})
		}
		if n < 0 {
			slices.Reverse(arc)
		}
		out = append(out, arc...)
	}
	return whole(slices.Compact(out))
}

// whole has a ring go on beyond longitude 180 instead of to the other end of a map, and closes
// one that goes around a pole along the end of the map.
func whole(ring []point) []point {
	turn := 0
	for i := range ring {
		if i > 0 {
			switch step := ring[i][0] + turn - ring[i-1][0]; {
			case step > 1800:
				turn -= 3600
			case step < -1800:
				turn += 3600
			}
		}
		ring[i][0] += turn
	}
	west, east := ring[0][0], ring[0][0]
	for _, p := range ring {
		west, east = min(west, p[0]), max(east, p[0])
	}
	for middle := (west + east) / 2; middle < -1800 || middle > 1800; middle = (west + east) / 2 {
		shift := 3600
		if middle > 0 {
			shift = -3600
		}
		for i := range ring {
			ring[i][0] += shift
		}
		west, east = west+shift, east+shift
	}
	first, last := ring[0], ring[len(ring)-1]
	if first == last {
		return ring
	}
	pole := 900
	if first[1] < 0 {
		pole = -900
	}
	return append(ring, point{last[0], pole}, point{first[0], pole}, first)
}

func write(w *bufio.Writer, ring []point) {
	if len(ring) < 4 {
		return // smaller than a tenth of a degree
	}
	var last point
	for i, p := range ring {
		if i > 0 {
			_ = w.WriteByte(' ')
		}
		_, _ = fmt.Fprintf(w, "%d,%d", p[0]-last[0], p[1]-last[1])
		last = p
	}
	_ = w.WriteByte('\n')
}
