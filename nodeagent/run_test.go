package nodeagent

import (
	"log/slog"
	"testing"
)

// TestOnDrainChange checks that a drain triggers an urgent pass and a round.
func TestOnDrainChange(t *testing.T) {
	t.Parallel()
	a, err := New(Config{StateDir: t.TempDir(), FabricDir: t.TempDir(), FactsDir: t.TempDir(), Socket: "unused", Cluster: "g1", Node: "n"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.loop.onDrainChange()
	if len(a.loop.urgent) != 1 || len(a.loop.trigger) != 1 {
		t.Error("a drain triggers no pass")
	}
}
