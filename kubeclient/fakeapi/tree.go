package fakeapi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
)

const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

// Tree renders a topology with clusters on top of a published tree. The first cluster exports the
// Services, named NAMESPACE/NAME.
func Tree(t testing.TB, published render.Tree, clusters []string, exports ...string) render.Tree {
	t.Helper()
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n  clusters:\n")
	for i, c := range clusters {
		_, _ = fmt.Fprintf(&out, "  - {name: %s, podCIDRs: [10.7.0.0/16], serviceCIDRs: [10.77.0.0/16], recipient: %s,\n"+
			"     gateways: [{name: a, node: node1, endpoints: [203.0.113.%d]}]}\n", c, recipient, i+1)
	}
	if len(exports) > 0 {
		out.WriteString("  exports:\n")
	}
	for _, e := range exports {
		namespace, name, _ := strings.Cut(e, "/")
		_, _ = fmt.Fprintf(&out, "  - {name: %s, namespace: %s, clusters: [%s], ports: [{port: 80}]}\n", name, namespace, clusters[0])
	}
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	built, list := reconciler.Build(reconciler.BuildInput{
		File: "clusterset.yaml", Topology: []byte(out.String()), LockFile: "clusterset.lock.yaml", Root: root, Published: published,
	})
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return built.Tree
}
