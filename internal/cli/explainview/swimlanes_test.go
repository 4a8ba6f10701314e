package explainview

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/view/swimlane"
)

// TestSwimlanes checks that a path ends in red where its packets end: at the gateway that refuses
// them, before a link that is down, at a service without backends, or at the source.
func TestSwimlanes(t *testing.T) {
	t.Parallel()
	links := []access.Link{{From: "g1/a", To: "hub/a", Driver: "wireguard"}, {From: "hub/a", To: "g2/a", Driver: "ipsec"}}
	requested := []netip.Addr{netip.MustParseAddr("243.0.0.1")}
	allowed := access.Destination{Cluster: "g2", Allowed: true, Links: links, Requested: requested, Translated: requested, Sources: []string{"242.1.0.1"}, Backend: "pods of shop/web",
		DecidedBy: "exports[shop/web].allow.clusters[g1]"}
	refused := allowed
	refused.Allowed, refused.Reason, refused.DecidedBy = false, "the allow list of shop/web does not have g1", "exports[shop/web].allow"
	noPath := refused
	noPath.Reason, noPath.DecidedBy = "g1 and g2 have no path to each other", "connectivity"
	down, empty := allowed, allowed
	down.Live = &access.LiveDestination{Verdict: access.NotDelivered, Hops: []access.Hop{
		{From: "g1", To: "hub", Links: []access.LiveLink{{State: access.Alive, InUse: true, RTT: 1200}}}, {From: "hub", To: "g2", Links: []access.LiveLink{{State: access.Down}}}}}
	empty.Live = &access.LiveDestination{Verdict: access.NotDelivered, Reasons: []string{"no backend of shop/web is ready in g2"}}
	for _, c := range []struct {
		name         string
		destinations []access.Destination
		lanes        string
		failed       string // lane and text of the failed step; empty: none
	}{
		{"yes", []access.Destination{allowed}, "g1 g1/a hub/a g2/a g2", ""},
		{"refused", []access.Destination{refused}, "g1 g1/a hub/a g2/a", "g2/a: the allow list of shop/web does not have g1 (at exports[shop/web].allow)"},
		{"apart", []access.Destination{noPath}, "g1", "g1: g1 and g2 have no path to each other (at connectivity)"},
		{"down", []access.Destination{down}, "g1 g1/a hub/a", "hub/a: no link between hub and g2 is alive"},
		{"empty", []access.Destination{empty}, "g1 g1/a hub/a g2/a g2", "g2: no backend of shop/web is ready in g2"},
		{"no export", nil, "g1", "g1: no cluster exports it"},
	} {
		a := &access.Answer{From: access.Source{Cluster: "g1"}, To: access.Target{Export: "shop/web"}, Reason: "no cluster exports it", Destinations: c.destinations}
		paths := Swimlanes(a, func(path string) string { return "at " + path })
		if len(paths) != 1 {
			t.Fatalf("%s: %d ways", c.name, len(paths))
		}
		if got := strings.Join(paths[0].Lanes(), " "); got != c.lanes {
			t.Errorf("%s: lanes %s, want %s", c.name, got, c.lanes)
		}
		if via := paths[0].Events[min(2, len(paths[0].Events)-1)].Via; c.name == "down" && via != "wireguard, 1.2ms" {
			t.Errorf("%s: the live link is %q", c.name, via)
		}
		failed := ""
		if i := slices.IndexFunc(paths[0].Events, func(s swimlane.Event) bool { return s.Tone == svg.Bad }); i >= 0 {
			if i != len(paths[0].Events)-1 {
				t.Errorf("%s: it continues after its end", c.name)
			}
			e := &paths[0].Events[i]
			failed = e.Swimlane + ": " + strings.Join(e.Texts[1:], " ")
		}
		if failed != c.failed {
			t.Errorf("%s: red is %q, want %q", c.name, failed, c.failed)
		}
	}
}
