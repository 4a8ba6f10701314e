package observe

import (
	"strings"
	"testing"

	"hawser.dev/hawser/health"
)

func TestOlderThan(t *testing.T) {
	t.Parallel()
	states := func(versions ...string) []health.State {
		var out []health.State
		for _, v := range versions {
			out = append(out, health.State{Nodes: []health.Node{{Version: v}}})
		}
		return out
	}
	for _, c := range []struct {
		own    string
		agents []string
		want   string
	}{
		{"v0.2.0", nil, ""},
		{"v0.2.0", []string{"v0.2.0", "v0.1.9", ""}, ""},
		{"v0.2.0", []string{"v0.2.1", "v0.10.0", "v0.3.0"},
			"warning: agents run v0.10.0 and this is hawser v0.2.0, which may not show all that they report: use hawser v0.10.0 or later\n"},
		{"dev", []string{"v0.2.0"}, ""},
		{"v0.2.0", []string{"dev"}, ""},
	} {
		if got := versionSkewWarning(c.own, states(c.agents...)); got != c.want {
			t.Errorf("hawser %s, agents %v: %q, want %q", c.own, c.agents, got, c.want)
		}
	}
}

// TestLaggingAgents checks what --wait waits for, and who has to act.
func TestLaggingAgents(t *testing.T) {
	t.Parallel()
	g := waitTarget{digest: "f2", image: "agent:v2"}
	node := func(fabric, off string) health.Node {
		return health.Node{Name: "n1", Fabric: fabric, Off: off}
	}
	for _, tt := range []struct {
		name  string
		state health.State
		want  string
	}{
		{"done", health.State{Delivered: "f2", Image: "agent:v2", Nodes: []health.Node{node("f2", "")}}, ""},
		{"fabric not delivered", health.State{Delivered: "f1", Image: "agent:v2", Nodes: []health.Node{node("f1", "")}},
			"c1: the cluster has fabric f1, not the published fabric f2; next: Flux or Argo CD, or hawser apply --repo URL"},
		{"image not delivered", health.State{Delivered: "f2", Image: "agent:v1", Nodes: []health.Node{node("f2", "")}},
			"c1: the agents run image agent:v1, not the published image agent:v2; next: Flux or Argo CD, or hawser apply --repo URL"},
		{"agent behind", health.State{Delivered: "f2", Image: "agent:v2", Nodes: []health.Node{node("f1", "")}},
			"c1: n1: not at the published fabric f2 yet"},
		{"node off", health.State{Delivered: "f2", Image: "agent:v2", Nodes: []health.Node{node("f1", "NotReady")}}, ""},
		{"unreachable", health.State{Error: "connection refused"}, ""},
	} {
		tt.state.Cluster = "c1"
		var have []string
		for _, p := range g.laggingAgents([]health.State{tt.state}) {
			have = append(have, p.String())
		}
		if text := strings.Join(have, "\n"); text != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
	}
}
