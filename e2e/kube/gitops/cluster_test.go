//go:build kube

package gitops

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clusterGoes adds a second cluster and uninstalls it as documented. Then it adds the cluster
// again, and prunes it.
func (r argoCluster) clusterGoes(t *testing.T) {
	one := topology([]string{"n1"}, "shop/web")
	two := strings.Replace(one, "  exports:\n", fmt.Sprintf(secondCluster, r.recipient)+"  exports:\n", 1)
	there := &testCluster{Server: r.other}
	r.publish(t, two)
	r.awaitApplications(t, "hawser", "hawser-g1", "hawser-g1-shop", "hawser-g2")
	r.awaitHealthy(t)
	if !r.fabricContains(t, "10.8.0.0/16") {
		t.Error("g1 does not know the prefix of g2")
	}
	const file = "patches/argocd/keep.yaml"
	r.commit(t, file, Documented(t, "../../../docs/uninstall.md", "preserveResourcesOnDeletion"))
	r.reconcile(t, 0)
	eventually(t, "its objects are to stay", func() (string, bool) {
		r.state(t, "hawser")
		got := r.get(t, ArgoNamespace, "application", "hawser-g2").GetFinalizers()
		return fmt.Sprint(got), len(got) == 0
	})
	r.publish(t, one)
	r.awaitApplications(t, "hawser", "hawser-g1", "hawser-g1-shop")
	r.awaitHealthy(t)
	if left := there.list(t, "daemonsets"); len(left) != 2 || r.fabricContains(t, "10.8.0.0/16") {
		t.Errorf("g2 has %v", slices.Sorted(maps.Keys(left)))
	}
	there.hawser(t, 0, "uninstall", "g2", "--yes")
	there.awaitRemoved(t, "pods")
	mustGit(t, r.repo, "rm", "-q", file)
	r.publish(t, two)
	r.awaitApplications(t, "hawser", "hawser-g1", "hawser-g1-shop", "hawser-g2")
	r.awaitHealthy(t)
	r.publish(t, one)
	r.awaitApplications(t, "hawser", "hawser-g1", "hawser-g1-shop")
	there.awaitRemoved(t, "pods", untracked)
	r.awaitHealthy(t)
}

// secondCluster is g2 in a topology.
const secondCluster = `  - name: g2
    podCIDRs: [10.8.0.0/16]
    serviceCIDRs: [10.78.0.0/16]
    recipient: %s
    gateways:
    - {name: far, node: n9, endpoints: [203.0.113.20]}
`

// fabricContains reports whether g1's fabric contains a prefix.
func (r argoCluster) fabricContains(t *testing.T, prefix string) bool {
	t.Helper()
	encoded := r.K(t, "-n", "hawser-system", "get", "configmap", "hawser-fabric", "-o", `jsonpath={.binaryData.fabric\.json\.gz}`)
	plain, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(encoded)))
	if err != nil {
		t.Fatal(err)
	}
	fabric, err := io.ReadAll(plain)
	if err != nil || len(fabric) == 0 {
		t.Fatalf("read the fabric: %v", err)
	}
	return strings.Contains(string(fabric), prefix)
}

// newRecipient creates an identity and returns its recipient.
func (r argoCluster) newRecipient(t *testing.T) string {
	t.Helper()
	out := strings.Fields(r.hawser(t, 0, "keys", "identity", filepath.Join(t.TempDir(), "g2")))
	at := slices.IndexFunc(out, func(word string) bool { return strings.HasPrefix(word, "age1") })
	if at < 0 {
		t.Fatalf("hawser keys identity prints %q", out)
	}
	return out[at]
}
