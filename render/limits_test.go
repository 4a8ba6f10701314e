package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
)

// TestSplitFabric: a fabric that is too large for one ConfigMap is split, mounted
// as a whole, and read back.
func TestSplitFabric(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	r := rand.New(rand.NewPCG(1, 2))
	c := &in.Topology.Spec.Clusters[0]
	for i := range 20 {
		g := schema.Gateway{Name: fmt.Sprintf("g%d", i), Node: fmt.Sprintf("n%d", i), PublicKey: randomKey(r)}
		for range 2000 {
			g.Endpoints = append(g.Endpoints, "dns:"+randomKey(r))
		}
		c.Gateways = append(c.Gateways, g)
	}
	lock, list := schema.Allocate(in.Topology, nil)
	noErrors(t, list)
	in.Lock = lock
	tree := mustRender(t, in)
	if tree["base/fabric-1.yaml"] == nil || tree["base/fabric-9.yaml"] != nil {
		t.Fatalf("not split: %v", tree.Paths()[:8])
	}
	for name, raw := range tree {
		if strings.HasPrefix(name, "base/fabric") && len(raw) > 1300<<10 {
			t.Errorf("%s has %d bytes", name, len(raw))
		}
	}
	f, err := render.FabricOf(tree)
	if err != nil || len(f.Clusters[0].Gateways) != 22 {
		t.Fatalf("read back: %v", err)
	}
	objects := build(t, tree, "clusters/c0")
	if !strings.Contains(objects["DaemonSet hawser-system/hawser-agent"], "name: hawser-fabric-1") ||
		!strings.Contains(objects["ConfigMap hawser-system/hawser-fabric-1"], "fabric.json.gz.1") {
		t.Error("the second part is not mounted")
	}
}

func randomKey(r *rand.Rand) string {
	raw := make([]byte, 32)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	text, _ := json.Marshal(raw)
	return strings.Trim(string(text), `"`)
}

// TestNotSupportedYet lists what validates and has no data path.
func TestNotSupportedYet(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, from, to, path string }{
		{"epochs", "spec:\n", "spec:\n  keys: {epochs: [1, 2]}\n", "keys.epochs"},
		{"every cable and shape", "spec:\n", "spec:\n  tunnel: {driver: vxlan}\n  connectivity: {mode: hub, hubs: [c0]}\n" +
			"  links: [{between: [c0, c1], driver: ipsec, mtu: 1300, keepalive: 3s}]\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree, list := render.Render(input(t, strings.Replace(world(3, 1), tt.from, tt.to, 1)))
			if tt.path == "" {
				noErrors(t, list)
				return
			}
			if tree != nil || len(list) != 1 {
				t.Fatalf("%d files, findings %v", len(tree), list)
			}
			d := list[0]
			if d.Code != "not-supported-yet" || d.Path != tt.path || !strings.Contains(d.Summary, "is not supported yet") ||
				!strings.HasPrefix(d.Hint, "supported: ") {
				t.Errorf("finding %+v", d)
			}
		})
	}
}
