package mapstatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

func TestLost(t *testing.T) {
	t.Parallel()
	const up, down = status.Connected, status.Disconnected
	for _, tt := range []struct {
		name   string
		agents []status.Status
		want   []string
	}{
		{"nobody answers for it, and all links to it are broken", []status.Status{
			agent("a", "x", to("b", "y", down, false), to("b", "z", up, true)), agent("b", "z", to("a", "x", up, true)),
		}, []string{"a partly, x partly", "b partly, y down, z up", "a-b partly [x-z] 1500 0.25"}},
		{"its agent is silent, and its link works", []status.Status{
			agent("a", "x", to("b", "y", up, true), to("b", "z", up, false)),
		}, []string{"a up, x up", "b unknown, y unknown, z unknown", "a-b up [x-y] 1500 0.25"}},
		{"nobody tells of it", nil, []string{"a unknown, x unknown", "b unknown, y unknown, z unknown", "a-b unknown [] 0 0.00"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := pairOf()
			Fill(m, tt.agents)
			Lost(m, tt.agents)
			if d := cmp.Diff(tt.want, told(m)); d != "" {
				t.Errorf("map (-want +have):\n%s", d)
			}
		})
	}
}
