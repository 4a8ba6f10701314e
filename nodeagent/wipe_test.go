package nodeagent

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// TestWipeStateDir checks that an agent empties the state directory only after a complete
// decommission. Files of other programs stay in it.
func TestWipeStateDir(t *testing.T) {
	t.Parallel()
	member := []fabric.Cluster{{Name: "g1"}}
	tests := []struct {
		name         string
		clusters     []fabric.Cluster
		decommission bool
		report       converge.Report
		kept         bool
	}{
		{name: "at work", clusters: member, kept: true},
		{name: "the cluster left, without a decommission", kept: true},
		{name: "decommission, but still a member", clusters: member, decommission: true, kept: true},
		{name: "objects are left", decommission: true, report: converge.Report{Interrupted: true}, kept: true},
		{name: "all objects are gone", decommission: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, err := New(Config{StateDir: dir, FabricDir: t.TempDir(), KeysDir: t.TempDir(), FactsDir: t.TempDir(), Socket: "unused", Cluster: "g1", Node: "n"},
				slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for _, name := range []string{"fabric.json.gz", "keys.age", "facts.json", "hw-wg1.log", "theirs", filepath.Join("ipsec", "charon.log")} {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := &fabric.Fabric{Clusters: tt.clusters, Decommission: tt.decommission}
			a.loop.outcome.Store(&round.Outcome{Report: tt.report, Projection: round.Projection{
				Input: projection.Input{Fabric: f, Cluster: "g1"}, Node: &round.DesiredNode{Decommission: tt.decommission},
			}})
			if err := a.wipeStateDir(); err != nil {
				t.Fatal(err)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{true: 6, false: 1}[tt.kept]; len(left) != want {
				t.Errorf("the state directory contains %v, want %d", left, want)
			}
		})
	}
}
