package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestTour runs the whole tour with the drivers vxlan and ipsec. TestScripts runs it with the
// driver of the complete topology, wireguard.
func TestTour(t *testing.T) {
	needs(t)
	t.Parallel()
	tours := []struct {
		driver string
		tunnel string // port and driver in the output of `hawser show connections`
	}{
		{"vxlan", `51884 +vxlan \(clear\)`},
		{"ipsec", `4500 +ipsec \((kernel|userspace)\)`},
	}
	for _, tour := range tours {
		t.Run(tour.driver, func(t *testing.T) {
			t.Parallel()
			topology := exampleWith(t, "driver: wireguard", "driver: "+tour.driver)
			p := params("")
			p.Files = []string{filepath.Join("testdata", "tour.txtar")}
			p.Setup = func(env *testscript.Env) error {
				if err := setup(env); err != nil {
					return err
				}
				env.Setenv("TOPOLOGY", topology)
				env.Setenv("CABLE", tour.tunnel)
				return nil
			}
			testscript.Run(t, p)
		})
	}
}

// exampleWith returns a copy of the complete topology with one text replaced.
func exampleWith(t *testing.T, text, other string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "clusterset.full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), text) != 1 {
		t.Fatalf("%q is not in the topology once", text)
	}
	path := filepath.Join(t.TempDir(), "clusterset.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), text, other, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
