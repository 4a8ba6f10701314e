package render_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
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

// TestPreviewWithoutRootKey: what needs the root key is marked, not an error,
// and only in a preview.
func TestPreviewWithoutRootKey(t *testing.T) {
	t.Parallel()
	top, _, list := schema.Load("clusterset.yaml", []byte(previewTopology))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	lock, list := schema.Allocate(top, nil)
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
	if key := f.Clusters[0].Gateways[0].Keys[0].Public; key != render.KnownLater {
		t.Errorf("public key %q", key)
	}
	if !strings.Contains(string(tree["clusters/g1/keys.yaml"]), render.KnownLater) {
		t.Error("the keys Secret does not say that it is known later")
	}
}
