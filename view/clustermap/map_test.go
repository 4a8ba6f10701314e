package clustermap

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/schema/fabric"
)

var update = flag.Bool("update", false, "write the goldens")

func testFabric(shape fabric.Shape, names ...string) *fabric.Fabric {
	f := &fabric.Fabric{Name: "demo", Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard}, Shape: shape}
	for i, name := range names {
		f.Clusters = append(f.Clusters, fabric.Cluster{
			Name: name, Globalnet: i > 0,
			PodCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.7.0.0/16")},
			GlobalCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{242, byte(i >> 8), byte(i), 0}), 24)},
			Gateways:    []fabric.Gateway{{Name: "a", Node: name + "-gw", Endpoints: []string{fmt.Sprintf("203.0.113.%d", i+1)}}},
		})
	}
	return f
}

// twoFabrics is a clusterset before and after: ams goes, sin comes with a link by VXLAN, fra
// gets a second gateway and nyc another prefix.
func twoFabrics() (before, after *fabric.Fabric) {
	before = testFabric(fabric.Shape{}, "ams", "fra", "nyc")
	after = testFabric(fabric.Shape{}, "fra", "nyc", "sin")
	for i, name := range []string{"fra", "nyc"} {
		after.Clusters[i] = *before.Cluster(name)
	}
	after.Clusters[0].Gateways = append(after.Clusters[0].Gateways[:1:1], fabric.Gateway{Name: "b", Node: "fra-gw2"})
	after.Clusters[1].PodCIDRs = append(after.Clusters[1].PodCIDRs[:1:1], netip.MustParsePrefix("10.8.0.0/16"))
	after.Links = []fabric.LinkSettings{{Between: [2]string{"fra", "nyc"}, Driver: fabric.DriverIPsec}, {Between: [2]string{"fra", "sin"}, Driver: fabric.DriverVXLAN}}
	after.Exports = []fabric.Export{{Namespace: "shop", Name: "web", Clusters: []fabric.ExportCluster{{Name: "fra"}, {Name: "sin"}}}}
	return before, after
}

func TestFormats(t *testing.T) {
	t.Parallel()
	m := Compare(twoFabrics())
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, have := range map[string]string{
		"changed.mmd": m.Mermaid(), "changed.dot": m.DOT(), "changed.svg": m.SVG(), "changed.json": string(raw) + "\n",
		"changed.md": m.Markdown("map.svg"),
	} {
		golden(t, name, have)
	}
}

// golden compares a text with the file of that name in testdata.
func golden(t *testing.T, name, have string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), have); d != "" {
		t.Errorf("%s (-want +have):\n%s", name, d)
	}
}

// TestStablePositions checks that the positions of clusters depend only on the names of clusters,
// not on links.
func TestStablePositions(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e"}
	var places []svg.Box
	for _, edges := range [][][2]string{{{"a", "b"}}, {{"a", "b"}, {"c", "e"}}, {{"b", "c"}, {"d", "e"}, {"a", "e"}}} {
		f := testFabric(fabric.Shape{Mode: fabric.ModeExplicit, Edges: edges}, names...)
		s := New(f).Drawing()
		if len(s.Lines) != len(edges) {
			t.Errorf("%d lines for %d links", len(s.Lines), len(edges))
		}
		if places == nil {
			places = s.Boxes
		}
		if d := cmp.Diff(places, s.Boxes); d != "" {
			t.Errorf("clusters moved (-before +after):\n%s", d)
		}
	}
}

// TestNoCardsOverlap: up to maxCards clusters, hubs or not, no card hides another.
func TestNoCardsOverlap(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxCards; n++ {
		for hubs := 0; hubs <= min(n, 3); hubs++ {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("c%02d", i)
			}
			shape := fabric.Shape{}
			if hubs > 0 {
				shape = fabric.Shape{Mode: fabric.ModeHub, Hubs: names[:hubs]}
			}
			s := New(testFabric(shape, names...)).Drawing()
			for i, a := range s.Boxes {
				if a.X < 0 || a.Y < margin || a.X+a.W > s.Width || a.Y+a.H > s.Height {
					t.Errorf("%d clusters, %d hubs: card %d is outside of the picture", n, hubs, i)
				}
				for j, b := range s.Boxes[:i] {
					if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
						t.Errorf("%d clusters, %d hubs: cards %d and %d overlap", n, hubs, j, i)
					}
				}
			}
		}
	}
}

// TestLabelsAreVisible checks that no card hides the label of a link of its cluster.
func TestLabelsAreVisible(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 6; n++ {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("c%02d", i)
		}
		m := New(testFabric(fabric.Shape{}, names...))
		for i := range m.Links {
			m.Links[i].RTT = 12800
		}
		labels := 0
		s := m.Drawing()
		for _, label := range s.Texts {
			if label.Text != "12.8 ms" {
				continue
			}
			labels++
			for _, b := range s.Boxes {
				if label.X > b.X && label.X < b.X+b.W && label.Y > b.Y && label.Y < b.Y+b.H {
					t.Errorf("%d clusters: a label at %.0f, %.0f is behind a card", n, label.X, label.Y)
				}
			}
		}
		if labels != n*(n-1)/2 {
			t.Errorf("%d clusters: %d labels", n, labels)
		}
	}
}

// TestHostileNames: a hostile fabric adds no element to a page and no statement to a graph.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const evil = "\x00\x1bx\"]\n  click n0 href \"javascript:alert(1)\"\n<script>alert(1)</script>&\\"
	f := testFabric(fabric.Shape{}, "a", evil)
	f.Name = evil
	f.Clusters[0].Gateways[0] = fabric.Gateway{Name: evil, Node: evil, Endpoints: []string{evil}}
	f.Tunnel.Driver = evil
	m := New(f)
	for name, text := range map[string]string{"mermaid": m.Mermaid(), "dot": m.DOT(), "svg": m.SVG(), "markdown": m.Markdown("map.svg")} {
		if strings.Contains(text, "<script") || strings.Contains(text, "\n  click") || strings.Contains(text, "javascript:") && name != "svg" {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	d := xml.NewDecoder(strings.NewReader(m.SVG()))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			switch e.Name.Local {
			case "svg", "style", "rect", "line", "circle", "title", "text":
			default:
				t.Errorf("element %s", e.Name.Local)
			}
		}
	}
}

// TestLargeMesh: half a million links that are as all others are no picture.
func TestLargeMesh(t *testing.T) {
	t.Parallel()
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("c%04d", i)
	}
	f := testFabric(fabric.Shape{}, names...)
	f.Links = []fabric.LinkSettings{{Between: [2]string{"c0001", "c0500"}, Driver: fabric.DriverVXLAN}}
	m := New(f)
	if !m.MeshImplied || len(m.Links) != 1 || m.Links[0].Driver != fabric.DriverVXLAN {
		t.Errorf("implied %t, links %v", m.MeshImplied, m.Links)
	}
	if text := m.Markdown("map.svg"); strings.Contains(text, "mermaid") || !strings.Contains(text, "every two of them linked") || len(text) > 1<<18 {
		t.Errorf("%d bytes of Markdown, which begin with %.200s", len(text), text)
	}
	if n := len(m.SVG()); n > 1<<20 {
		t.Errorf("%d bytes of SVG", n)
	}
	subset, err := Neighborhood(f, "c0500")
	if err != nil {
		t.Fatal(err)
	}
	if m := New(subset); m.MeshImplied || len(m.Links) != 999 {
		t.Errorf("around c0500: implied %t, %d links", m.MeshImplied, len(m.Links))
	}
	if _, err := Neighborhood(f, "nobody"); err == nil || err.Error() != "there is no cluster nobody in the topology" {
		t.Errorf("error %v", err)
	}
}

func BenchmarkSVG(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("c%04d", i)
	}
	f := testFabric(fabric.Shape{}, names...)
	for b.Loop() {
		_ = New(f).SVG()
	}
}
