package render_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

// TestNoSecretInTheTree searches all output for every key derived from the root key, in every
// encoding. The output is the tree, errors, inputs of plans, and logs.
func TestNoSecretInTheTree(t *testing.T) {
	t.Parallel()
	id := identity(t)
	top := strings.Replace(world(3, 3), "spec:\n", "spec:\n  tunnel: {driver: ipsec}\n", 1)
	in := input(t, strings.ReplaceAll(top, recipient, id.Recipient().String()))
	c := &in.Topology.Spec.Clusters[1]
	c.Gateways = append(c.Gateways, schema.Gateway{Name: "own", Node: "n9", PublicKey: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="})
	lock, list := allocate.Allocate(in.Topology, in.Lock)
	noErrors(t, list)
	in.Lock = lock
	tree := mustRender(t, in)
	f, err := render.FabricOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	fabricJSON, err := fabric.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.Write(fabricJSON)
	for name, raw := range tree {
		_, _ = fmt.Fprintf(&out, "%s\n%s\n", name, raw)
	}
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("input", "input", in, "root", in.Root)
	slog.New(slog.NewTextHandler(&out, nil)).Info("input", "input", in, "root", in.Root)
	_, _ = fmt.Fprintf(&out, "%v %+v %#v %x %s\n", in, in, in, in.Root, in.Root)
	for _, d := range failures(t, in) {
		_, _ = fmt.Fprintf(&out, "%s %s %+v\n", d.Error(), d.Hint, d)
	}
	for _, secret := range secretsOf(t, in) {
		for _, form := range []string{string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)),
			base64.StdEncoding.EncodeToString(secret)[:42], base64.RawURLEncoding.EncodeToString(secret),
			strings.Trim(fmt.Sprint(secret), "[]")} {
			if strings.Contains(out.String(), form) {
				t.Fatalf("a secret of %d bytes is in the output", len(secret))
			}
		}
	}
	for i := range in.Topology.Spec.Clusters {
		opened(t, tree, in.Topology.Spec.Clusters[i].Name, id)
	}
}

// failures returns the errors of all code that handles keys.
func failures(t *testing.T, in render.Input) diag.List {
	t.Helper()
	bad := *in.Topology
	bad.Spec.Clusters = append([]schema.Cluster{}, in.Topology.Spec.Clusters...)
	bad.Spec.Clusters[0].Recipient = "AGE-SECRET-KEY-1"
	in.Topology = &bad
	_, list := render.Render(in)
	if !list.HasErrors() {
		t.Error("a bad recipient is no error")
	}
	return list
}

// secretsOf returns the root key, and every private key and seed.
func secretsOf(t *testing.T, in render.Input) [][]byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(in.Root.Encode())))
	if err != nil {
		t.Fatal(err)
	}
	out := [][]byte{raw}
	for i := range in.Topology.Spec.Clusters {
		k, err := in.Root.Keys(in.Topology, &in.Topology.Spec.Clusters[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range k.Epochs {
			out = append(out, e.PSKSeed[:])
			for _, of := range []map[string]fabric.Secret{e.Gateways, e.Ed25519} {
				for _, g := range of {
					out = append(out, bytes.Clone(g[:]))
				}
			}
		}
	}
	if len(out) != 1+3+6+6 {
		t.Fatalf("%d secrets", len(out))
	}
	return out
}

// opened checks that a cluster's identity decrypts its keys, as the agent does.
func opened(t *testing.T, tree render.Tree, cluster string, id age.Identity) {
	t.Helper()
	r, err := age.Decrypt(armor.NewReader(strings.NewReader(render.SealedOf(tree, cluster).Ciphertext)), id)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	k, err := fabric.DecodeKeys(raw)
	if err != nil || k.Cluster != cluster || len(k.Epochs[0].Gateways) != 2 {
		t.Errorf("keys of %s: %v", cluster, err)
	}
}

// TestWithoutRootKey checks that the published tree can be rendered again without the root key. The
// error about a missing key names the key.
func TestWithoutRootKey(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	want := mustRender(t, in)
	in.Root, in.Previous = nil, want
	if have := mustRender(t, in); !have.Equal(want) {
		t.Error("rendering without the root key differs")
	}
	top, _, list := load.Topology("clusterset.yaml", []byte(world(3, 2)))
	noErrors(t, list)
	lock, list := allocate.Allocate(top, in.Lock)
	noErrors(t, list)
	_, list = render.Render(render.Input{Topology: top, Lock: lock, Previous: want})
	if len(list) == 0 {
		t.Fatal("a new cluster needs keys")
	}
	for _, d := range list {
		if d.Code != "no-root-key" || !strings.HasPrefix(d.Path, "clusters[c2]") || !strings.Contains(d.Hint, "hawser keys root") {
			t.Errorf("finding %+v", d)
		}
	}
	top.Metadata.Name = "another"
	if _, list := render.Render(render.Input{Topology: top, Lock: lock, Previous: want}); len(list) < 6 {
		t.Errorf("the keys of another clusterset were taken: %v", list)
	}
}

// TestDamagedPublication checks that an unreadable publication is replaced.
func TestDamagedPublication(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 2))
	want := mustRender(t, in)
	for name, raw := range map[string]string{
		"base/fabric.yaml":      "binaryData: {fabric.json.gz: '!'}",
		"clusters/c0/keys.yaml": "data: {keys.age: '!'}",
		"clusters/c1/keys.yaml": "\tnot YAML",
	} {
		in.Previous = render.Tree{}
		for n, r := range want {
			in.Previous[n] = r
		}
		in.Previous[name] = []byte(raw)
		have := mustRender(t, in)
		if bytes.Equal(have[name], in.Previous[name]) || len(have) != len(want) {
			t.Errorf("%s was kept", name)
		}
	}
	if _, err := render.FabricOf(render.Tree{"base/fabric.yaml": []byte("binaryData: {fabric.json.gz: '!'}")}); err == nil {
		t.Error("read a damaged fabric")
	}
}
