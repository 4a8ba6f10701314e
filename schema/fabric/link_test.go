package fabric

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLinkOf(t *testing.T) {
	t.Parallel()
	f := &Fabric{
		Tunnel: TunnelDefaults{Driver: DriverWireguard, MTU: 1400, Keepalive: Duration(25 * time.Second)},
		Links: []LinkSettings{
			{Between: [2]string{"b", "d"}, Driver: DriverVXLAN, Port: 53000},
			{Between: [2]string{"a", "c"}, Driver: DriverIPsec, Keepalive: Duration(time.Second)},
		},
		Clusters: []Cluster{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}},
	}
	SortLinks(f.Links)
	tests := []struct {
		a, b string
		want LinkSettings
	}{
		{"c", "a", LinkSettings{Between: [2]string{"a", "c"}, Driver: DriverIPsec, Keepalive: Duration(time.Second)}},
		{"b", "d", LinkSettings{Between: [2]string{"b", "d"}, Driver: DriverVXLAN, Port: 53000}},
		{"b", "a", LinkSettings{Between: [2]string{"a", "b"}, Driver: DriverWireguard, MTU: 1400, Keepalive: Duration(25 * time.Second)}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, f.Link(tt.a, tt.b)); d != "" {
			t.Errorf("%s to %s (-want +have)\n%s", tt.a, tt.b, d)
		}
		if d := cmp.Diff(f.Link(tt.a, tt.b), f.Link(tt.b, tt.a)); d != "" {
			t.Errorf("%s to %s: not the same from both ends\n%s", tt.a, tt.b, d)
		}
	}
	for cluster, want := range map[string]string{"a": "ipsec wireguard", "b": "vxlan wireguard", "x": ""} {
		if have := strings.Join(f.Drivers(cluster), " "); have != want {
			t.Errorf("drivers of %s: want %q, have %q", cluster, want, have)
		}
	}
	f.Shape = Shape{Mode: ModeExplicit, Edges: [][2]string{{"a", "c"}}}
	if have := strings.Join(f.Drivers("a"), " "); have != "ipsec" {
		t.Errorf("drivers of a with one link: have %q", have)
	}
}

func TestBasePort(t *testing.T) {
	t.Parallel()
	g := &Gateway{Port: 51820}
	for _, tt := range []struct{ link, endpoint, want int }{{0, 0, 51820}, {53000, 0, 53000}, {0, 61820, 61820}, {53000, 61820, 61820}} {
		if have := (LinkSettings{Port: tt.link}).BasePort(g, tt.endpoint); have != tt.want {
			t.Errorf("link %d, endpoint %d: want %d, have %d", tt.link, tt.endpoint, tt.want, have)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	right := map[string]string{
		"203.0.113.1": "203.0.113.1", "203.0.113.1:61820": "203.0.113.1:61820",
		"2001:DB8::1": "2001:db8::1", "[2001:db8:0::1]:1": "[2001:db8::1]:1",
		"dns:GW.example.com": "dns:gw.example.com", "dns:gw.example.com:65535": "dns:gw.example.com:65535",
	}
	for text, want := range right {
		e, err := ParseEndpoint(text)
		if err != nil || e.String() != want {
			t.Errorf("%s: want %s, have %s, %v", text, want, e, err)
		}
		again, err := ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Errorf("%s: read again %+v, %v", e, again, err)
		}
	}
	for _, text := range []string{
		"", "dns:", "dns::1", "dns:a:", "dns:a:0", "dns:a:65536", "dns:a:01", "dns:a:b:1", "gw.example.com", "gw.example.com:1",
		"10.0.0.1:", "10.0.0.1:0", "10.0.0.1:+1", "[10.0.0.1]:1", "[2001:db8::1]", "[]:1", "10.0.0.0/8", "10.0.0.1:1:1",
	} {
		if e, err := ParseEndpoint(text); err == nil {
			t.Errorf("%q: want an error, have %+v", text, e)
		}
	}
}

// TestNewFieldsOmitted checks that a document without new features has no new field, so that its
// bytes and its digest stay.
func TestNewFieldsOmitted(t *testing.T) {
	t.Parallel()
	raw, err := Encode(&Fabric{Clusters: []Cluster{{Gateways: []Gateway{{Keys: []Key{{}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shape", "links", "ipsec", "ed25519"} {
		if strings.Contains(string(raw), fmt.Sprintf("%q", name)) {
			t.Errorf("%s is not omitted: %s", name, raw)
		}
	}
}
