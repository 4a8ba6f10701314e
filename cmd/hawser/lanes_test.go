package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/arrival"
	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/schema/fabric/explain"
	"hawser.dev/hawser/view/swimlane"
)

// TestExplainWays: a way ends in red where the packets do: at the gateway that refuses them,
// before a link that is down, at a service without backends, or where they begin.
func TestExplainWays(t *testing.T) {
	t.Parallel()
	links := []explain.Link{{From: "g1/a", To: "hub/a", Driver: "wireguard"}, {From: "hub/a", To: "g2/a", Driver: "ipsec"}}
	asked := []netip.Addr{netip.MustParseAddr("243.0.0.1")}
	yes := explain.Trip{Cluster: "g2", Yes: true, Links: links, Asked: asked, Carried: asked, Sources: []string{"242.1.0.1"}, Served: "pods of shop/web",
		Decided: "exports[shop/web].allow.clusters[g1]"}
	refused := yes
	refused.Yes, refused.Why, refused.Decided = false, "the allow list of shop/web does not have g1", "exports[shop/web].allow"
	apart := refused
	apart.Why, apart.Decided = "g1 and g2 have no path to each other", "connectivity"
	down := &arrival.Live{Trips: []arrival.Trip{{Cluster: "g2", Verdict: arrival.Fails, Hops: []arrival.Hop{
		{From: "g1", To: "hub", Links: []arrival.Link{{State: arrival.Alive}}}, {From: "hub", To: "g2", Links: []arrival.Link{{State: arrival.Down}}}}}}}
	empty := &arrival.Live{Trips: []arrival.Trip{{Cluster: "g2", Verdict: arrival.Fails, Why: []string{"no backend of shop/web is ready in g2"}}}}
	for _, c := range []struct {
		name  string
		trips []explain.Trip
		live  *arrival.Live
		lanes string
		red   string // lane and text of the red step; empty: none
	}{
		{"yes", []explain.Trip{yes}, nil, "g1 g1/a hub/a g2/a g2", ""},
		{"refused", []explain.Trip{refused}, nil, "g1 g1/a hub/a g2/a", "g2/a: the allow list of shop/web does not have g1 (at exports[shop/web].allow)"},
		{"apart", []explain.Trip{apart}, nil, "g1", "g1: g1 and g2 have no path to each other (at connectivity)"},
		{"down", []explain.Trip{yes}, down, "g1 g1/a hub/a", "hub/a: no link between hub and g2 is alive"},
		{"empty", []explain.Trip{yes}, empty, "g1 g1/a hub/a g2/a g2", "g2: no backend of shop/web is ready in g2"},
		{"nobody", nil, nil, "g1", "g1: nobody exports it"},
	} {
		a := explained{Answer: &explain.Answer{From: explain.From{Cluster: "g1"}, To: explain.To{Export: "shop/web"}, Why: "nobody exports it", Trips: c.trips}, Live: c.live}
		ways := explainPaths(a, func(path string) string { return "at " + path })
		if len(ways) != 1 {
			t.Fatalf("%s: %d ways", c.name, len(ways))
		}
		if got := strings.Join(ways[0].Lanes(), " "); got != c.lanes {
			t.Errorf("%s: lanes %s, want %s", c.name, got, c.lanes)
		}
		red := ""
		if i := slices.IndexFunc(ways[0].Events, func(s swimlane.Event) bool { return s.Tone == svg.Bad }); i >= 0 {
			if i != len(ways[0].Events)-1 {
				t.Errorf("%s: it goes on behind its end", c.name)
			}
			red = ways[0].Events[i].Lane + ": " + strings.Join(ways[0].Events[i].Texts[1:], " ")
		}
		if red != c.red {
			t.Errorf("%s: red is %q, want %q", c.name, red, c.red)
		}
	}
}
