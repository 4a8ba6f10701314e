package host

import (
	"log/slog"
	"slices"
	"testing"
)

// TestPeersComeLast checks that no packets pass through a tunnel before their rules and routes
// exist. An agent may be killed between any two stages.
func TestPeersComeLast(t *testing.T) {
	t.Parallel()
	h, err := Open(Config{StateDir: t.TempDir(), Cluster: "g1", Node: "g1-a", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var names []string
	for _, s := range h.Stages() {
		names = append(names, s.Name())
	}
	last := len(names) - 1
	for _, earlier := range []string{"nft table", "nft element", "route", "rule"} {
		if !slices.Contains(names[:last], earlier) {
			t.Errorf("%s is not among %v", earlier, names[:last])
		}
	}
	if names[last] != "peer" {
		t.Errorf("the last stage is %s of %v", names[last], names)
	}
}
