package projection_test

import (
	"slices"
	"testing"

	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
)

// TestQuota checks that gateways have the quota of the topology, and other nodes have none. A
// gateway whose kernel cannot count connections reports a problem.
func TestQuota(t *testing.T) {
	t.Parallel()
	w, _ := readWorld(t, "testdata/families.txtar")
	for _, test := range []struct {
		name        string
		node        string
		connections int
		noConnLimit bool
		want        int
		reported    bool
	}{
		{"gateway", "c/c-a", 500, false, 500, false},
		{"gateway, none", "c/c-a", 0, false, 0, false},
		{"gateway whose kernel cannot", "c/c-a", 500, true, 0, true},
		{"gateway whose kernel cannot, without a quota", "c/c-a", 0, true, 0, false},
		{"worker", "c/c-w1", 500, true, 0, false},
	} {
		in := w.inputs[test.node]
		f := *in.Fabric
		f.Limits.Connections, in.Fabric = test.connections, &f
		in.Local.NoConnLimit = test.noConnLimit
		s, problems := projection.Desired(in)
		if got := s.Tables[0].Connections; got != test.want {
			t.Errorf("%s: quota of %d connections, want %d", test.name, got, test.want)
		}
		reported := slices.ContainsFunc(problems, func(p projection.Problem) bool {
			return p.Code == status.QuotaUnsupported && p.Path == "limits.connections"
		})
		if reported != test.reported {
			t.Errorf("%s: quota-unsupported is reported: %v, want %v", test.name, reported, test.reported)
		}
	}
}
