package render_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric/trust"
)

// pinnedTo returns the state of an agent of c0 that trusts the current signers.
func pinnedTo(t *testing.T, in render.Input) trust.Remembered {
	t.Helper()
	today, _, err := in.Root.Signers(in.Topology.Metadata.Name, in.Topology.Spec.Keys.Epochs)
	if err != nil {
		t.Fatal(err)
	}
	pins, err := trust.ParsePins([]byte(trust.PinFile(in.Topology.Metadata.Name, "c0", []string{trust.Line(today[0].PublicKey())})))
	if err != nil {
		t.Fatal(err)
	}
	state, err := trust.Pinned(pins, "c0", trust.Remembered{})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// admit verifies a rendered tree as an agent does.
func admit(t *testing.T, state trust.Remembered, tree render.Tree) (trust.Remembered, error) {
	t.Helper()
	packed, proof, err := render.FabricAndProof(tree)
	if err != nil {
		t.Fatal(err)
	}
	if state, err = state.Admit(trust.Fabric, "c0", packed, proof); err != nil {
		return state, err
	}
	s := render.SealedOf(tree, "c0")
	return state.Admit(trust.Keys, "c0", []byte(s.Ciphertext), []byte(s.Proof))
}

// TestSigned checks that agents admit a rendered tree. An unchanged document keeps its signature. A
// changed document has a newer revision, even if the clock went back or the published tree is gone.
func TestSigned(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	in.Now = 1000
	first := mustRender(t, in)
	state, err := admit(t, pinnedTo(t, in), first)
	if err != nil || state.Fabric != 1000 || state.Keys != 1000 {
		t.Fatalf("state %+v: %v", state, err)
	}
	in.Previous, in.Now = first, 2000
	if again := mustRender(t, in); !again.Equal(first) {
		t.Error("nothing changed, and the tree did")
	}
	in.Topology.Spec.Exports[0].Ports[0].Port++
	in.Now = 500
	second := mustRender(t, in)
	if state, err = admit(t, state, second); err != nil || state.Fabric != 1001 || state.Keys != 1000 {
		t.Errorf("after a change: state %+v: %v", state, err)
	}
	if _, err := admit(t, state, first); err == nil || !strings.Contains(err.Error(), "is revision 1000, older than revision 1001") {
		t.Errorf("the older tree: %v", err)
	}
	in.Previous, in.Now = nil, 3000
	if state, err = admit(t, state, mustRender(t, in)); err != nil || state.Fabric != 3000 || state.Keys != 3000 {
		t.Errorf("without the published tree: state %+v: %v", state, err)
	}
}

// TestSwappedKeys replaces the published ciphertext or proof of a cluster's keys, as an attacker
// can. The next rendering corrects them, so that agents admit the tree.
func TestSwappedKeys(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	tree := mustRender(t, in)
	const path = "clusters/c0/keys.yaml"
	own := render.SealedOf(tree, "c0")
	other := render.SealedOf(tree, "c1")
	swap := func(old, new string) []byte {
		b64 := func(s string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte(s))) }
		out := bytes.Replace(tree[path], b64(old), b64(new), 1)
		if bytes.Equal(out, tree[path]) {
			t.Fatal("nothing was swapped")
		}
		return out
	}
	for name, raw := range map[string][]byte{
		"another ciphertext":         swap(own.Ciphertext, other.Ciphertext),
		"another cluster's proof":    swap(own.Proof, other.Proof),
		"no proof":                   slices.Concat(tree[path][:bytes.Index(tree[path], []byte("  keys.sig"))]),
		"a proof without signatures": swap(own.Proof, `{"statement":"{}","signatures":[]}`),
	} {
		in.Previous = render.Tree{}
		for at, text := range tree {
			in.Previous[at] = text
		}
		in.Previous[path] = raw
		if _, err := admit(t, pinnedTo(t, in), mustRender(t, in)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnsigned checks that without the root key a changed fabric is not signed, with a warning. An
// unchanged fabric keeps its proof.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	signed := mustRender(t, in)
	in.Previous, in.Root = signed, nil
	same, list := render.Render(in)
	if len(list) > 0 || !same.Equal(signed) {
		t.Errorf("unchanged: %v", list)
	}
	in.Topology.Spec.Exports[0].Ports[0].Port++
	tree, list := render.Render(in)
	if len(list) != 1 || list[0].Code != "unsigned" || list.HasErrors() {
		t.Errorf("changed: %v", list)
	}
	if _, proof, err := render.FabricAndProof(tree); err != nil || len(proof) > 0 {
		t.Errorf("proof %s, %v", proof, err)
	}
	in.Preview = true
	tree, list = render.Render(in)
	if _, proof, _ := render.FabricAndProof(tree); len(list) > 0 || string(proof) != render.KnownAfterPublish {
		t.Errorf("preview: proof %s, %v", proof, list)
	}
}

// TestProofSize checks that the proof grows only with rotations.
func TestProofSize(t *testing.T) {
	t.Parallel()
	_, small, err := render.FabricAndProof(mustRender(t, input(t, world(2, 1))))
	if err != nil {
		t.Fatal(err)
	}
	_, large, err := render.FabricAndProof(mustRender(t, input(t, world(20, 20))))
	if err != nil {
		t.Fatal(err)
	}
	var p trust.Proof
	if err := json.Unmarshal(large, &p); err != nil || len(p.Chain) != 1 || len(large) > len(small)+16 || len(large) > 2000 {
		t.Errorf("%d bytes after %d, chain %d: %v", len(large), len(small), len(p.Chain), err)
	}
}
