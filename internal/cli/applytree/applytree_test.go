package applytree

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli"
)

// TestAgreement: only a yes is consent, and a question comes only where there is
// something to do.
func TestAgreement(t *testing.T) {
	t.Parallel()
	changes := &apply.Plan{Changes: []apply.Change{{Op: "+"}}}
	tests := []struct {
		name, say string
		planned   []apply.Result
		agreed    bool
		asked     string
	}{
		{"yes", "y\n", []apply.Result{{Cluster: "g1", Plan: changes}}, true, "Apply this to 1 cluster? [y/N] "},
		{"yes in full", " YES \n", []apply.Result{{Cluster: "g1", Plan: changes}, {Cluster: "g2", Plan: changes}}, true, "to 2 clusters?"},
		{"no", "n\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"return", "\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"the end of the input", "", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"something else", "yesterday\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"one that failed is not counted", "y\n", []apply.Result{{Cluster: "g1", Error: "away"}, {Cluster: "g2", Plan: changes}}, true, "to 1 cluster?"},
		{"nothing to do", "", []apply.Result{{Cluster: "g1", Plan: &apply.Plan{}}}, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var g confirmation
			agreed := g.ask(t.Context(), &cli.Env{In: strings.NewReader(tt.say), Err: &out}, tt.planned)
			if agreed != tt.agreed || g.refused == tt.agreed {
				t.Errorf("agreed %v, refused %v", agreed, g.refused)
			}
			if tt.asked == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.asked) {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// TestAgreementEnds: an interrupt ends the question, and is no consent.
func TestAgreementEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, hold := io.Pipe()
	t.Cleanup(func() { _ = hold.Close() })
	var g confirmation
	if g.ask(ctx, &cli.Env{In: silent, Err: io.Discard}, []apply.Result{{Plan: &apply.Plan{Changes: []apply.Change{{Op: "+"}}}}}) || !g.refused {
		t.Error("an interrupt is taken for a yes")
	}
}
