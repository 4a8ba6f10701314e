package observe

import (
	"testing"

	"hawser.dev/hawser/kubeclient/clusterstatus"
)

func TestOlderThan(t *testing.T) {
	t.Parallel()
	states := func(versions ...string) []clusterstatus.State {
		var out []clusterstatus.State
		for _, v := range versions {
			out = append(out, clusterstatus.State{Nodes: []clusterstatus.Node{{Version: v}}})
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
			"warning: there are agents of v0.10.0, and this is hawser v0.2.0, which may not know all that they say: use hawser v0.10.0 or a newer one\n"},
		{"dev", []string{"v0.2.0"}, ""},
		{"v0.2.0", []string{"dev"}, ""},
	} {
		if got := versionSkewWarning(c.own, states(c.agents...)); got != c.want {
			t.Errorf("hawser %s, agents %v: %q, want %q", c.own, c.agents, got, c.want)
		}
	}
}
