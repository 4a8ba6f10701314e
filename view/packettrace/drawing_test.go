package packettrace

import (
	"testing"

	"hawser.dev/hawser/internal/svg"
)

// TestPaths: every trace that failed ends in red, and no other has red in it.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, trace := range reportWithAllOutcomes().Traces {
		red := 0
		for _, path := range trace.Paths() {
			for _, event := range path.Events {
				if event.Tone == svg.Bad {
					red++
				}
			}
		}
		if (red > 0) != trace.failed() {
			t.Errorf("%s: %d red events", trace.Outcome, red)
		}
	}
}
