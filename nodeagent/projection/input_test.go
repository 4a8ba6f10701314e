package projection_test

import (
	"testing"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
)

// TestAcceptedByNodes checks when the other nodes accept VXLAN from this node.
func TestAcceptedByNodes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		nodes []model.Node
		want  bool
	}{
		{"no facts", nil, false},
		{"reported", []model.Node{{Name: "other", Unprotected: true}, {Name: "n"}}, true},
		{"not reported since the boot", []model.Node{{Name: "other"}, {Name: "n", Unprotected: true}}, false},
	}
	for _, tt := range tests {
		if got := (projection.Input{Node: "n", Facts: model.Facts{Nodes: tt.nodes}}).AcceptedByNodes(); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
