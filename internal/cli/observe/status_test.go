package observe

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
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

// TestBlocking checks which problems --wait waits for.
func TestBlocking(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(s *health.State)
		want   []string
	}{
		{"no problem", func(*health.State) {}, nil},
		{"export scaled to zero", func(s *health.State) {
			s.Nodes[0].Problems = []status.Problem{{Code: status.ExportWithoutEndpoints, Severity: status.Warning, Text: "no ready endpoint"}}
		}, nil},
		{"gateway drained", func(s *health.State) { s.Nodes[0].Drained = true }, nil},
		{"rollout", func(s *health.State) { s.Outdated = 1 }, []string{"c1: 1 of 1 agents wait for the rollout of the newest DaemonSet; " +
			"next: kubectl --context c1 -n hawser-system rollout status daemonset"}},
		{"error and warning", func(s *health.State) {
			s.Nodes[0].Problems = []status.Problem{{Code: status.PodsOutsideCIDRs, Severity: status.Error, Text: "pods are outside"},
				{Code: status.ConntrackFull, Severity: status.Warning, Text: "full"}}
		}, []string{"c1/n1: pods are outside"}},
		{"links down", func(s *health.State) { s.Nodes[0].LinksUp = 0 }, []string{"c1/n1: 0 of 1 links are up; next: hawser show connections --cluster c1"}},
		{"no answer", func(s *health.State) { s.Error = "connection refused" }, []string{"c1: connection refused"}},
		{"no report", func(s *health.State) { s.Nodes = nil }, []string{"c1: no agent has reported: there is no HawserNode; " +
			"next: kubectl --context c1 -n hawser-system get daemonsets,pods"}},
	} {
		s := health.State{Cluster: "c1", Pods: 1, Running: 1, Nodes: []health.Node{{Name: "n1", Cluster: "c1", Role: "gateway", Ready: "True", LinksUp: 1, Links: 1}}}
		tt.change(&s)
		if have := blocking(health.Assess([]health.State{s})); !slices.Equal(have, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, have, tt.want)
		}
	}
}

// TestLaggingAgents checks which lagging agents --wait waits for, and the next step that status
// prints.
func TestLaggingAgents(t *testing.T) {
	t.Parallel()
	g := waitTarget{digest: "f2", image: "agent:v2"}
	node := func(fabric, off string) health.Node {
		return health.Node{Name: "n1", Fabric: fabric, NodeNotReady: off}
	}
	for _, tt := range []struct {
		name  string
		state health.State
		want  string
	}{
		{"done", health.State{Delivered: "f2", Image: "agent:v2", Nodes: []health.Node{node("f2", "")}}, ""},
		{"fabric not delivered", health.State{Delivered: "f1", Image: "agent:v2", Nodes: []health.Node{node("f1", "")}},
			"c1: the cluster has fabric f1, not the published fabric f2; next: wait for Flux or Argo CD, or run hawser apply --repo URL"},
		{"image not delivered", health.State{Delivered: "f2", Image: "agent:v1", Nodes: []health.Node{node("f2", "")}},
			"c1: the agents run image agent:v1, not the published image agent:v2; next: wait for Flux or Argo CD, or run hawser apply --repo URL"},
		{"agent behind", health.State{Delivered: "f2", Image: "agent:v2", Nodes: []health.Node{node("f1", "")}},
			"c1: n1: not at the published fabric f2 yet; next: wait for these agents, which read the delivered fabric"},
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

func TestNodeNetwork(t *testing.T) {
	t.Parallel()
	node := func(direct, vxlan int64, reason string) health.Node {
		return health.Node{NodeNetwork: &health.NodePaths{Direct: direct, VXLAN: vxlan, Reason: reason}}
	}
	off := node(0, 9, "off")
	off.NodeNotReady = "NotReady"
	for _, tt := range []struct {
		nodes []health.Node
		want  string
	}{
		{nil, ""},
		{[]health.Node{{}}, ""},
		{[]health.Node{node(2, 0, ""), {}, node(4, 0, ""), off}, "6/6 direct"},
		{[]health.Node{node(6, 0, ""), node(0, 1, "w2 is behind a router"), node(6, 1, "eth0 has a BPF program")}, "12/14 direct, 2 VXLAN: w2 is behind a router"},
	} {
		if have := nodeNetwork(tt.nodes); have != tt.want {
			t.Errorf("%q, want %q", have, tt.want)
		}
		table := statusTables([]health.State{{Cluster: "c1", Nodes: tt.nodes}}, true)
		if !strings.Contains(table, "NODE NETWORK") || !strings.Contains(table, tt.want) {
			t.Errorf("no %q in\n%s", tt.want, table)
		}
	}
}

// TestSilentAgent checks that the tables do not count the old report of an agent that hangs.
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	table := statusTables([]health.State{{Cluster: "c1", Pods: 1, NotReady: []health.Pod{{Name: "hawser-agent-x", Node: "n1", Reason: "since 2026-11-28T07:00:00Z"}},
		Nodes: []health.Node{{Name: "n1", Cluster: "c1", Role: "gateway", Ready: "True", Fabric: "f1", LinksUp: 1, Links: 1}}}}, true)
	table = strings.Join(strings.Fields(table), " ")
	for _, want := range []string{"c1 0/1 0/1 0/1", "c1 n1 gateway Unknown - - - not ready since 2026-11-28T07:00:00Z"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in %s", want, table)
		}
	}
}
