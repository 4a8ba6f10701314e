package swimlane

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/svg"
)

var update = flag.Bool("update", false, "write the goldens")

func paths() []Path {
	return []Path{
		{Title: "tcp 10.7.2.5 -> 243.0.0.1:80, 12 packets: dropped", Tone: svg.Bad, Events: []Event{
			{Swimlane: "g1/g1-w1", Texts: []string{"12 packets", "as tcp 10.7.2.5 -> 242.2.0.20:80"}},
			{Swimlane: "g1/g1-gw", Via: "hw-vx0", Texts: []string{"12 packets", "as tcp 242.1.0.7 -> 242.2.0.20:80"}},
			{Swimlane: "g2/g2-gw", Via: "hw-wg0", Tone: svg.Bad, Texts: []string{"ended at rule 12 in chain forward of table inet filter",
				"dropped by a rule of the host's firewall, written by another program", "to do: let packets from 242.0.0.0/8 through"}},
		}},
		{Title: "within a cluster", Events: []Event{{Swimlane: "g1", Texts: []string{"asks"}}, {Swimlane: "g1", Via: "lo", Texts: []string{"answers"}}}},
	}
}

// TestGolden compares drawings with the goldens.
func TestGolden(t *testing.T) {
	t.Parallel()
	got := Draw("hawser diagnose", paths()).String()
	file := filepath.Join("testdata", "paths.svg")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestNothingOverlaps: no event hides another event. All events and their texts are inside the swimlane
// of their node and inside the picture.
func TestNothingOverlaps(t *testing.T) {
	t.Parallel()
	long := []Path{{Title: strings.Repeat("a long title ", 30), Events: []Event{
		{Swimlane: strings.Repeat("long", 30), Texts: []string{strings.Repeat("x", 500), strings.Repeat("word ", 200)}},
		{Swimlane: "b", Via: strings.Repeat("device", 20), Texts: []string{"here"}},
		{Swimlane: strings.Repeat("long", 30), Texts: []string{"back"}, Tone: svg.Bad},
	}}}
	for _, w := range [][]Path{paths(), long, {{Title: "nothing"}}} {
		d := Draw("title", w)
		for i, a := range d.Boxes {
			if a.X < 0 || a.Y < 0 || a.X+a.W > d.Width || a.Y+a.H > d.Height {
				t.Errorf("box %d is outside of the picture", i)
			}
			for j, b := range d.Boxes[:i] {
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("boxes %d and %d overlap", j, i)
				}
			}
			inside := false
			for _, b := range d.Bands {
				inside = inside || a.X >= b.X && a.X+a.W <= b.X+b.W && a.Y >= b.Y && a.Y+a.H <= b.Y+b.H
			}
			if !inside {
				t.Errorf("box %d is in no lane", i)
			}
		}
		for _, text := range d.Texts {
			if text.Y > d.Height || text.X > d.Width || text.Anchor == "start" && text.X+float64(len([]rune(text.Text)))*text.Size*0.5 > d.Width {
				t.Errorf("%q is cut off", text.Text)
			}
		}
	}
}

// TestEnded: what ended is red, and its text is there.
func TestEnded(t *testing.T) {
	t.Parallel()
	text := Draw("", paths()).String()
	for _, want := range []string{`class="step bad box"`, `class="bad link"`, `class="bad tip"`, "ended at rule 12 in chain forward"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if got := strings.Join((&paths()[0]).Lanes(), " "); got != "g1/g1-w1 g1/g1-gw g2/g2-gw" {
		t.Errorf("lanes %s", got)
	}
}
