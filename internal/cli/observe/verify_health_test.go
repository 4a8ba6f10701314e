package observe

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
)

// TestVerifyConcern checks which problems verify prints first.
func TestVerifyConcern(t *testing.T) {
	t.Parallel()
	problems := []health.Problem{
		{Severity: health.Error, Code: "g1", Cluster: "g1", Text: "of the client"}, {Severity: health.Warning, Code: "g2", Cluster: "g2", Text: "of the server"},
		{Severity: health.Error, Code: "g3", Cluster: "g3"}, {Severity: health.Error, Code: "all"}, {Severity: health.Info, Code: "info", Cluster: "g1"},
		{Severity: health.Error, Code: "export", Cluster: "g2", Export: "shop/web"}, {Severity: health.Error, Code: "other", Cluster: "g2", Export: "shop/db"},
	}
	check := func(cluster, problem string) status.Verified {
		return status.Verified{Check: status.Check{Export: "shop/web", Cluster: cluster, Name: "web"}, Error: problem, Reached: []string{"243.0.0.1:80"}}
	}
	for _, tt := range []struct {
		name   string
		result status.Verified
		want   string
	}{
		{"answered", check("g2", ""), ""},
		{"one cluster's part", check("g2", "timeout"), "g1 g2 all export"},
		{"the whole service", check("", "timeout"), "g1 g2 g3 all export"},
	} {
		v := verification{Nodes: []status.Verification{{Cluster: "g1", Node: "a", Results: []status.Verified{tt.result}}}}
		v.Problems = v.concern(problems)
		var have []string
		for _, p := range v.Problems {
			have = append(have, p.Code)
		}
		if !slices.Equal(have, strings.Fields(tt.want)) {
			t.Errorf("%s: %v, want %s", tt.name, have, tt.want)
		}
		if text := v.text(); tt.want != "" && !strings.HasPrefix(text, "g1: of the client\ng2: of the server\n") {
			t.Errorf("%s: the problems are not first:\n%s", tt.name, text)
		}
	}
}
