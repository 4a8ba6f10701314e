package render_test

import (
	"strings"
	"testing"

	"hawser.dev/hawser/render"
)

// TestSharedKeys checks that a user-provided public key is rejected if it equals the derived key of
// another gateway. Agents would identify the gateway as the other one.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	const two = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.1.0.0/16]
    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250
    gateways: [{name: a, node: n1, endpoints: [192.0.2.1]}]
  - name: g2
    podCIDRs: [10.2.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways: [{name: a, node: n1, endpoints: [192.0.2.2]}]
`
	f, err := render.FabricOf(mustRender(t, input(t, two)))
	if err != nil {
		t.Fatal(err)
	}
	victim := f.Clusters[1].Gateways[0].Keys[0]
	for field, key := range map[string]string{"publicKey": victim.Public, "ikePublicKey": victim.Ed25519} {
		own := "endpoints: [192.0.2.1]"
		_, list := render.Render(input(t, strings.Replace(two, own, own+", "+field+": "+key, 1)))
		if err := list.Err(); err == nil || !strings.Contains(err.Error(), "clusters[g1].gateways[a]."+field+": another gateway has the same public key") {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
