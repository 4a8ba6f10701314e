package peer

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/nodeagent/peer/migration"
)

// TestKeptTunnels: what an agent kept before tunnels had epochs is of the first one.
func TestKeptTunnels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "cables.json")
	text := `{"g2/a":{"cables":[{"driver":"vxlan","ports":[1,2]},{"driver":"wireguard","ports":[1,2]},{"driver":"ipsec","ports":[0,0],"epoch":2}],` +
		`"use":{"driver":"wireguard","ports":[1,2]}}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := restoreTunnels(statefile.New[map[string]migration.Saved](dir, "cables.json"), slog.New(slog.DiscardHandler))["g2/a"]
	want := []migration.TunnelID{
		{Driver: "vxlan", Ports: [2]int{1, 2}}, {Driver: "wireguard", Ports: [2]int{1, 2}, Epoch: 1}, {Driver: "ipsec", Epoch: 2},
	}
	for i, c := range want {
		if len(kept.Tunnels) != len(want) || kept.Tunnels[i] != c || kept.Use != want[1] {
			t.Fatalf("kept %+v", kept)
		}
	}
}
