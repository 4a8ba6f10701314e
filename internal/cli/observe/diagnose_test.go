package observe

import (
	"strings"
	"testing"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/packettrace"
)

// TestDiagnosisPage checks that the page has each trace with its drawing, and no other view.
func TestDiagnosisPage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	hop := &packettrace.Hop{Cluster: "g1", Node: "g1-gw", Outcome: packettrace.Dropped, Finding: &status.Finding{Location: "rule </script>", Text: "dropped"}}
	r := &packettrace.Report{Traces: []packettrace.Trace{{First: hop, Outcome: packettrace.Dropped}}, Nodes: []status.Diagnosis{{Cluster: "g1", Node: "g1-gw", Packets: 3}},
		Unreachable: []status.Unreachable{{Agent: "g2", Error: "gone"}}}
	if err := writeDiagnosisPage((&cli.Env{Out: &out}), r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"hiddenViews":["map","matrix","findings","change","node","explain","follow"]`, `"outcome":"dropped"`,
		`"drawings":[{"width":`, `ended at rule \u003c/script\u003e: dropped`, `"unreachable":[{"agent":"g2","error":"gone"}]`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}
