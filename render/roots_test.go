package render_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/fabric"
)

// rootText returns the base64 of a root key of one repeated byte. 7 is the byte of rootOf.
func rootText(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, keys.RootSize))
}

func readRoot(t testing.TB, text string) *keys.Root {
	t.Helper()
	root, err := keys.ReadRoot([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// at returns the input for a topology with the given epochs, root key and previous tree.
func at(t testing.TB, epochs, root string, previous render.Tree) render.Input {
	t.Helper()
	in := input(t, strings.Replace(world(2, 2), "spec:\n", "spec:\n  keys: {epochs: "+epochs+"}\n", 1))
	in.Root, in.Previous = readRoot(t, root), previous
	return in
}

// keysIn returns the public keys of an epoch, by cluster and gateway.
func keysIn(t testing.TB, tree render.Tree, epoch int) map[string]fabric.Key {
	t.Helper()
	f, err := render.FabricOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]fabric.Key{}
	for _, c := range f.Clusters {
		for _, g := range c.Gateways {
			for _, k := range g.Keys {
				if k.Epoch == epoch {
					out[c.Name+"/"+g.Name] = k
				}
			}
		}
	}
	return out
}

// TestRootRotation replaces the root key with the two commits of a rotation. Published keys do not
// change. The keys of the new epoch come only from the new root key. At the end the old root key
// has no effect.
func TestRootRotation(t *testing.T) {
	t.Parallel()
	old, both, young := rootText(7), "1 "+rootText(7)+"\n2 "+rootText(8)+"\n", "2 "+rootText(8)+"\n"
	first := mustRender(t, at(t, "[1]", old, nil))
	if added := mustRender(t, at(t, "[1]", both, first)); !added.Equal(first) {
		t.Error("another root key changes the published tree")
	}
	during := mustRender(t, at(t, "[1, 2]", both, first))
	if diff := cmp.Diff(keysIn(t, first, 1), keysIn(t, during, 1)); diff != "" {
		t.Errorf("keys of epoch 1 (-before +during)\n%s", diff)
	}
	want := keysIn(t, mustRender(t, at(t, "[1, 2]", rootText(8), nil)), 2)
	if diff := cmp.Diff(want, keysIn(t, during, 2)); diff != "" || len(want) != 4 {
		t.Errorf("keys of epoch 2 (-new root key alone +both)\n%s", diff)
	}
	after := mustRender(t, at(t, "[2]", both, during))
	if diff := cmp.Diff(want, keysIn(t, after, 2)); diff != "" {
		t.Errorf("keys of epoch 2 (-during +after)\n%s", diff)
	}
	if dropped := mustRender(t, at(t, "[2]", young, after)); !dropped.Equal(after) {
		t.Error("a dropped root key changes the published tree")
	}
}

// TestWrongRoot checks that a root key is rejected if it does not serve a current epoch. It is also
// rejected if it would derive other keys than the published ones.
func TestWrongRoot(t *testing.T) {
	t.Parallel()
	one := mustRender(t, at(t, "[1]", rootText(7), nil))
	two := mustRender(t, at(t, "[1, 2]", rootText(7), one))
	young := "2 " + rootText(8) + "\n"
	const (
		lost  = "put back the root key that serves epoch 1, from a copy: it can go once that epoch has left keys.epochs"
		ended = "came from another root key: every tunnel would be down until both its ends know the new ones"
	)
	for _, tt := range []struct {
		name, epochs, root string
		previous           render.Tree
		want               []string
	}{
		{"dropped too early", "[1, 2]", young, one, []string{"no-root-key keys.epochs[0]: no root key serves epoch 1: the oldest one serves from epoch 2 on (hint: " + lost + ")"}},
		{"nothing is published", "[1]", young, nil, []string{"no-root-key keys.epochs[0]: no root key serves epoch 1: the oldest one serves from epoch 2 on (hint: " + lost + ")"}},
		{"another", "[1]", rootText(8), one, []string{"root-break keys.epochs[0]: the published keys of epoch 1 " + ended +
			" (hint: use that root key; a new root key can start at epoch 2 (hawser keys root FILE --from 2); if it is lost, --allow-other-root replaces it)"}},
		{"begun too early", "[1, 2]", "1 " + rootText(7) + "\n2 " + rootText(8), two, []string{"root-break keys.epochs[1]: the published keys of epoch 2 " + ended +
			" (hint: use that root key; a new root key can start at epoch 3 (hawser keys root FILE --from 3); if it is lost, --allow-other-root replaces it)"}},
		{"lost", "[2]", rootText(8), two, []string{"root-break keys.epochs[0]: the published keys of epoch 2 " + ended +
			" (hint: use that root key; a new root key can start at epoch 3 (hawser keys root FILE --from 3); if it is lost, --allow-other-root replaces it)"}},
		{"too early and another", "[1, 2]", young, two, []string{
			"no-root-key keys.epochs[0]: no root key serves epoch 1: the oldest one serves from epoch 2 on (hint: " + lost + ")",
			"root-break keys.epochs[1]: the published keys of epoch 2 " + ended +
				" (hint: use that root key; a new root key can start at epoch 3 (hawser keys root FILE --from 3); if it is lost, --allow-other-root replaces it)"}},
		{"the right one", "[1, 2]", rootText(7), two, nil},
		{"another, and nothing is published", "[1]", rootText(8), nil, nil},
	} {
		_, list := render.Render(at(t, tt.epochs, tt.root, tt.previous))
		if diff := cmp.Diff(tt.want, texts(list)); diff != "" {
			t.Errorf("%s: findings (-want +have)\n%s", tt.name, diff)
		}
	}
}

func texts(list diag.List) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.Code+" "+d.Path+": "+d.Summary+" (hint: "+d.Hint+")")
	}
	return out
}

// TestOtherRootAllowed checks that AllowOtherRoot lets another root key serve current epochs.
func TestOtherRootAllowed(t *testing.T) {
	t.Parallel()
	in := at(t, "[1]", rootText(8), mustRender(t, at(t, "[1]", rootText(7), nil)))
	in.AllowOtherRoot = true
	want := mustRender(t, at(t, "[1]", rootText(8), nil))
	if diff := cmp.Diff(keysIn(t, want, 1), keysIn(t, mustRender(t, in), 1)); diff != "" {
		t.Errorf("keys (-want +have)\n%s", diff)
	}
}

// TestRootAndOtherKeys checks that a changed user-provided key is not mistaken for another root
// key. The same applies to an added or removed gateway.
func TestRootAndOtherKeys(t *testing.T) {
	t.Parallel()
	brought := at(t, "[1]", rootText(7), nil)
	for i := range brought.Topology.Spec.Clusters {
		brought.Topology.Spec.Clusters[i].Gateways[0].PublicKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i + 1)}, 32))
	}
	published := mustRender(t, brought)
	mustRender(t, at(t, "[1]", rootText(7), published)) // derived from now on
	brought.Previous = mustRender(t, at(t, "[1]", rootText(7), nil))
	mustRender(t, brought)
	// No gateway has a published derived key any more.
	moved := at(t, "[1]", rootText(8), published)
	for i := range moved.Topology.Spec.Clusters {
		c := &moved.Topology.Spec.Clusters[i]
		c.Gateways = c.Gateways[:1]
	}
	mustRender(t, moved)
}
