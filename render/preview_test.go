package render_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
)

const previewTopology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: a, node: n1, endpoints: [203.0.113.1]}
`

// TestPreviewWithoutRootKey checks that only a preview replaces keys that need the root key by
// placeholders. Otherwise they are an error.
func TestPreviewWithoutRootKey(t *testing.T) {
	t.Parallel()
	top, _, list := load.Topology("clusterset.yaml", []byte(previewTopology))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	lock, list := allocate.Allocate(top, nil)
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	if _, list := render.Render(render.Input{Topology: top, Lock: lock}); !list.HasErrors() {
		t.Error("rendered without a root key")
	}
	tree, list := render.Render(render.Input{Topology: top, Lock: lock, Preview: true})
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	f, err := render.FabricOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	if key := f.Clusters[0].Gateways[0].Keys[0].Public; key != render.KnownAfterPublish {
		t.Errorf("public key %q", key)
	}
	if !strings.Contains(string(tree["clusters/g1/keys.yaml"]), render.KnownAfterPublish) {
		t.Error("the keys Secret lacks the placeholder")
	}
}

// TestPreviewOfKeysThatWereBrought checks a gateway whose user-provided key is removed. Its new key
// is a placeholder, because only the root key can derive it.
func TestPreviewOfKeysThatWereBrought(t *testing.T) {
	t.Parallel()
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	for brought, want := range map[string]fabric.Key{
		"":                           {Epoch: 1},
		", publicKey: '" + key + "'": {Epoch: 1, Public: render.KnownAfterPublish, Ed25519: render.KnownAfterPublish},
		", publicKey: '" + key + "', ikePublicKey: '" + key + "'": {Epoch: 1, Public: render.KnownAfterPublish, Ed25519: render.KnownAfterPublish},
		", ikePublicKey: '" + key + "'":                           {Epoch: 1, Ed25519: render.KnownAfterPublish},
	} {
		load := func(text string) render.Input {
			t.Helper()
			top, _, list := load.Topology("clusterset.yaml", []byte(text))
			if err := list.Err(); err != nil {
				t.Fatal(err)
			}
			lock, list := allocate.Allocate(top, nil)
			if err := list.Err(); err != nil {
				t.Fatal(err)
			}
			return render.Input{Topology: top, Lock: lock}
		}
		in := load(strings.Replace(previewTopology, ", endpoints", brought+", endpoints", 1))
		in.Root = root
		published, list := render.Render(in)
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
		f, err := render.FabricOf(published)
		if err != nil {
			t.Fatal(err)
		}
		was := f.Clusters[0].Gateways[0].Keys[0]
		in = load(previewTopology)
		in.Previous, in.Preview = published, true
		tree, list := render.Render(in)
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
		if f, err = render.FabricOf(tree); err != nil {
			t.Fatal(err)
		}
		want.Public, want.Ed25519 = cmp.Or(want.Public, was.Public), cmp.Or(want.Ed25519, was.Ed25519)
		if have := f.Clusters[0].Gateways[0].Keys[0]; have != want {
			t.Errorf("brought%q: key %+v, want %+v", brought, have, want)
		}
		in.Root = root
		if _, list := render.Render(in); list.HasErrors() {
			t.Errorf("brought%q: with the root key: %v", brought, list.Err())
		}
	}
}
