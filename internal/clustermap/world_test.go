package clustermap

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema/fabric"
)

var cities = []fabric.Location{
	{Latitude: 50.11, Longitude: 8.68}, {Latitude: 52.37, Longitude: 4.9}, {Latitude: 51.5, Longitude: -0.12}, {Latitude: 40.7, Longitude: -74},
	{Latitude: 37.77, Longitude: -122.4}, {Latitude: 1.35, Longitude: 103.8}, {Latitude: 35.68, Longitude: 139.7}, {Latitude: -33.87, Longitude: 151.2},
	{Latitude: -23.5, Longitude: -46.6}, {Latitude: -26.2, Longitude: 28}, {Latitude: 64.1, Longitude: -21.9}, {Latitude: -54.8, Longitude: -68.3},
}

// spreadOut is a clusterset of so many clusters in the cities given, the first of them without
// a location.
func spreadOut(clusters, without int, cities []fabric.Location) *fabric.Fabric {
	names := make([]string, clusters)
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%04d", i)
	}
	f := world(fabric.Shape{}, names...)
	for i := without; i < clusters; i++ {
		f.Clusters[i].Location = &cities[i%len(cities)]
	}
	return f
}

// TestWorldGolden: the map of the world as SVG, of clusters near each other and one without
// a location.
func TestWorldGolden(t *testing.T) {
	t.Parallel()
	golden(t, "world.svg", New(spreadOut(7, 1, cities[:3])).SVG())
}

// TestWorldIsReadable: from one cluster to a thousand no card and no name hides another, all
// are inside of the picture, those with a location on the map and the others beside it.
func TestWorldIsReadable(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 6, 7, 16, 17, 64, 300, 1000} {
		for _, without := range []int{0, 1, n / 2} {
			if without >= n {
				continue
			}
			m := New(spreadOut(n, without, cities))
			l := m.Layout()
			w, h, left := 2*dotSide+12*letterWidth, nameHeight, dotSide
			if l.Cards {
				w, h, left = cardWidth, cardHeight, cardWidth/2
			}
			for i, p := range l.Places {
				x, y := p.X-left, p.Y-h/2
				if x < 0 || y < margin || x+w > l.Width || y+h > l.Height {
					t.Errorf("%d clusters, %d without: cluster %d is outside of the picture at %v", n, without, i, p)
				}
				if on := x >= l.Frame.X && x+w <= l.Frame.X+l.Frame.W && y >= l.Frame.Y && y+h <= l.Frame.Y+l.Frame.H; on != (m.Clusters[i].Location != nil) {
					t.Errorf("%d clusters, %d without: cluster %d on the map: %v", n, without, i, on)
				}
				for j, q := range l.Places[:i] {
					if math.Abs(p.X-q.X) < w && math.Abs(p.Y-q.Y) < h {
						t.Fatalf("%d clusters, %d without: clusters %d and %d overlap", n, without, j, i)
					}
				}
			}
			for _, ring := range l.Land {
				for _, p := range ring {
					if p.X < l.Frame.X || p.Y < l.Frame.Y || p.X > l.Frame.X+l.Frame.W || p.Y > l.Frame.Y+l.Frame.H {
						t.Fatalf("%d clusters: land beyond the frame at %v", n, p)
					}
				}
			}
		}
	}
}

// TestWorldPlaces: clusters that have room are where they are; north is up and east right,
// across the date line too.
func TestWorldPlaces(t *testing.T) {
	t.Parallel()
	of := func(cities ...fabric.Location) Layout {
		// Seven are dots, which take less room; those too many are where the first is.
		all := append([]fabric.Location{}, cities...)
		for len(all) < 7 {
			all = append(all, cities[0])
		}
		return New(spreadOut(7, 0, all)).Layout()
	}
	l := of(cities[7], cities[6], cities[4], cities[11]) // Sydney, Tokyo, San Francisco, Ushuaia
	sydney, tokyo, francisco, ushuaia := l.Places[0], l.Places[1], l.Places[2], l.Places[3]
	if tokyo.X >= sydney.X || sydney.X >= francisco.X || francisco.X >= ushuaia.X {
		t.Errorf("from west to east: Tokyo %v, Sydney %v, San Francisco %v, Ushuaia %v", tokyo, sydney, francisco, ushuaia)
	}
	if tokyo.Y >= sydney.Y || francisco.Y >= ushuaia.Y || francisco.Y >= tokyo.Y {
		t.Errorf("from north to south: San Francisco %v, Tokyo %v, Sydney %v, Ushuaia %v", francisco, tokyo, sydney, ushuaia)
	}
	if tokyo.Pin != nil || francisco.Pin != nil {
		t.Error("clusters that have room are drawn elsewhere")
	}
	if v := viewOf(cities[:3]); v.width > leastWidth+1 || v.longitude < 0 || v.longitude > 10 {
		t.Errorf("of Europe is shown %+v", v)
	}
	for _, odd := range [][]fabric.Location{
		{{Latitude: 90, Longitude: 180}, {Latitude: -90, Longitude: -180}}, {{Latitude: 90}}, {{Latitude: 1e300, Longitude: -1e300}}, {{Longitude: 180}, {Longitude: -180}},
	} {
		for i, p := range of(odd...).Places {
			if math.IsNaN(p.X+p.Y) || p.X < 0 || p.Y < 0 {
				t.Errorf("%v: cluster %d at %v", odd, i, p)
			}
		}
	}
}

// TestWorldStands: a link that comes or goes moves nothing on the map of the world either, and
// what is on it says where.
func TestWorldStands(t *testing.T) {
	t.Parallel()
	f := spreadOut(20, 2, cities)
	mesh := New(f).Layout()
	f.Shape = fabric.Shape{Mode: fabric.ModeLinks, Edges: [][2]string{{"cluster-0000", "cluster-0007"}}}
	m := New(f)
	if d := cmp.Diff(mesh, m.Layout()); d != "" {
		t.Errorf("clusters moved (-mesh +one link):\n%s", d)
	}
	picture := m.SVG()
	for _, want := range []string{`class="sea"`, `class="land"`, `class="lead"`, "without a location"} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %s in the picture", want)
		}
	}
	if strings.Contains(New(spreadOut(20, 20, cities)).SVG(), "sea") {
		t.Error("a map of the world without a location")
	}
}

// BenchmarkWorld places a thousand clusters in twelve cities, which the page does before its
// first picture.
func BenchmarkWorld(b *testing.B) {
	m := New(spreadOut(1000, 0, cities))
	for b.Loop() {
		m.Layout()
	}
}
