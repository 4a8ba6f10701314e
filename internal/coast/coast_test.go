package coast

import "testing"

// TestRings: rings are closed and on the globe, and what is inside of them is land.
func TestRings(t *testing.T) {
	t.Parallel()
	rings := Rings()
	if len(rings) < 100 || len(text) > 40_000 {
		t.Errorf("%d rings, %d bytes", len(rings), len(text))
	}
	for i, r := range rings {
		if r[0] != r[len(r)-1] {
			t.Errorf("ring %d begins at %v and ends at %v", i, r[0], r[len(r)-1])
		}
		for _, p := range r {
			if p.Longitude < -360 || p.Longitude > 360 || p.Latitude < -90 || p.Latitude > 90 {
				t.Errorf("ring %d: %v is not on the globe", i, p)
			}
		}
	}
	for name, tt := range map[string]struct {
		at   Point
		land bool
	}{
		"Frankfurt": {Point{8.7, 50.1}, true}, "Denver": {Point{-105, 39.7}, true}, "Alice Springs": {Point{133.9, -23.7}, true}, "Nairobi": {Point{36.8, -1.3}, true},
		"the Atlantic": {Point{-40, 30}, false}, "the Pacific": {Point{-150, 0}, false}, "Antarctica": {Point{10, -80}, true}, "the South Pole": {Point{10, -89.9}, true}, "south of Fiji": {Point{0, -16.7}, false},
		"the Caspian Sea": {Point{51, 41}, false},
	} {
		inside := false
		for _, r := range rings {
			for i := 1; i < len(r); i++ {
				a, b := r[i-1], r[i]
				if (a.Latitude > tt.at.Latitude) != (b.Latitude > tt.at.Latitude) &&
					tt.at.Longitude < a.Longitude+(b.Longitude-a.Longitude)*(tt.at.Latitude-a.Latitude)/(b.Latitude-a.Latitude) {
					inside = !inside
				}
			}
		}
		if inside != tt.land {
			t.Errorf("%s: land %v, want %v", name, inside, tt.land)
		}
	}
}
