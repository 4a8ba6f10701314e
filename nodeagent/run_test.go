package nodeagent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/nodeagent/round"
)

// TestSettled: an agent looks again once links of the run before are no longer
// kept, although nothing happens.
func TestSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, looked := time.Now(), time.Time{}
		settled(t.Context(), func() { looked = time.Now() })
		if looked.Sub(began) < round.SettleTime {
			t.Errorf("looked after %s, want %s", looked.Sub(began), round.SettleTime)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		settled(ended, func() { t.Error("looked although the agent ends") })
	})
}

// TestAnnounce: after a drain the links are looked at at once, and then all else.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	a, err := New(Config{StateDir: t.TempDir(), FabricDir: t.TempDir(), FactsDir: t.TempDir(), Socket: "unused", Cluster: "g1", Node: "n"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.loop.announce()
	if len(a.loop.urgent) != 1 || len(a.loop.trigger) != 1 {
		t.Error("nobody looks anew after a drain")
	}
}
