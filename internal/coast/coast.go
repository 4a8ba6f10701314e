// Package coast has the land of the world, coarse enough to be small: Natural Earth at
// 1:110m, in tenths of degrees. It is pure.
package coast

import (
	_ "embed" // for the file
	"strconv"
	"strings"
)

//go:embed coast.txt
var text string

// Point is a place in degrees.
type Point struct{ Longitude, Latitude float64 }

// Rings gives the outlines of all land, each closed: where it began it ends. A ring across
// longitude 180 goes on beyond it, and is there once. A hole is a ring as well (there is one:
// the Caspian Sea), which the rule of even and odd keeps empty.
func Rings() [][]Point {
	var rings [][]Point
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		ring := make([]Point, len(fields))
		var lon, lat int
		for i, f := range fields {
			east, north, _ := strings.Cut(f, ",")
			lon, lat = lon+number(east), lat+number(north)
			ring[i] = Point{float64(lon) / 10, float64(lat) / 10}
		}
		rings = append(rings, ring)
	}
	return rings
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // it is built in
	}
	return n
}
