package render_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
)

// TestSplitFabric checks that a fabric that is too large for one ConfigMap is split. All parts are
// mounted, and the fabric can be read back.
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
	lock, list := allocate.Allocate(in.Topology, nil)
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

// TestEpochs checks that two key epochs are rendered together. A change without a published epoch
// is rejected.
func TestEpochs(t *testing.T) {
	t.Parallel()
	with := func(epochs string) string {
		return strings.Replace(world(3, 1), "spec:\n", "spec:\n  tunnel: {driver: ipsec}\n  keys: {epochs: "+epochs+"}\n", 1)
	}
	one := mustRender(t, input(t, with("[1]")))
	in := input(t, with("[1, 2]"))
	in.Previous = one
	both := mustRender(t, in)
	f, err := render.FabricOf(both)
	if err != nil || len(f.Epochs) != 2 || len(f.Clusters[0].Gateways[0].Keys) != 2 {
		t.Fatalf("epochs %v of %+v: %v", f.Epochs, f.Clusters[0].Gateways[0], err)
	}
	in = input(t, with("[2]"))
	in.Previous = one
	_, list := render.Render(in)
	want := "error: keys.epochs: [2] contains no published epoch ([1]): every tunnel would be down until both its ends know the new keys" +
		" (hint: publish [1, 2] first, and drop 1 when no link uses it)"
	if len(list) != 1 || list[0].Code != "epoch-break" || list[0].Summary+" (hint: "+list[0].Hint+")" != strings.TrimPrefix(want, "error: keys.epochs: ") {
		t.Errorf("findings %+v", list)
	}
	in.Previous = both
	mustRender(t, in)
}

// TestAlternateAddressPool checks that the pool is too small if an alternate address is allocated
// already. IPsec uses alternate addresses in even epochs.
func TestAlternateAddressPool(t *testing.T) {
	t.Parallel()
	small := func(epochs string) diag.List {
		_, list := render.Render(input(t, strings.Replace(world(3, 1), "spec:\n",
			"spec:\n  tunnel: {driver: ipsec, cidr: 241.0.0.0/29}\n  keys: {epochs: "+epochs+"}\n", 1)))
		return list
	}
	noErrors(t, small("[1]"))
	list := small("[1, 2]")
	if len(list) != 1 || list[0].Code != "pool-exhausted" || list[0].Path != "tunnel.cidr" {
		t.Errorf("findings %v", list)
	}
}

// TestReadableIsNotApplied checks that no cluster applies the fabric as text and the topology. With
// a thousand clusters they exceed the size limit of objects.
func TestReadableIsNotApplied(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, world(1000, 2000)))
	for _, name := range []string{render.FabricText, render.TopologyText} {
		if len(tree[name]) < 300<<10 || !json.Valid(tree[name]) {
			t.Errorf("%s has %d bytes", name, len(tree[name]))
		}
		if long := slices.MaxFunc(strings.Split(string(tree[name]), "\n"), func(a, b string) int { return len(a) - len(b) }); len(long) > 1000 {
			t.Errorf("%s has a line of %d bytes", name, len(long))
		}
	}
	for _, name := range []string{render.MapPicture, render.MapText} {
		if !strings.Contains(string(tree[name]), "c999") || len(tree[name]) > 1<<20 {
			t.Errorf("%s has %d bytes, or not all clusters", name, len(tree[name]))
		}
	}
	for name, raw := range tree {
		if strings.HasSuffix(name, "kustomization.yaml") && slices.ContainsFunc([]string{render.FabricText, render.TopologyText, render.MapPicture, render.MapText},
			func(own string) bool { return strings.Contains(string(raw), own) }) {
			t.Errorf("%s refers to a file that clusters must not receive", name)
		}
		if top, _, hasDir := strings.Cut(name, "/"); hasDir && top == "base" && len(raw) > 1300<<10 {
			t.Errorf("%s has %d bytes", name, len(raw))
		}
	}
	for key, text := range build(t, tree, "clusters/c7") {
		if len(text) > 1<<20 || strings.Contains(text, render.TopologyText) {
			t.Errorf("%s has %d bytes", key, len(text))
		}
	}
}
