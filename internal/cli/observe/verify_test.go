package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
)

// TestVerifiedText: what several nodes have in common is reported once.
func TestVerifiedText(t *testing.T) {
	t.Parallel()
	good := status.Verified{Export: "shop/web", Name: "web.shop.svc.set", Reached: []string{"243.0.0.1:80"}}
	bad := status.Verified{Export: "shop/web", Cluster: "g2", Name: "g2.web.shop.svc.set", Error: "connect to 242.2.0.9:80: i/o timeout"}
	skipped := status.Verified{Export: "shop/db", Name: "db.shop.svc.set", Skipped: "no endpoint is ready"}
	node := func(cluster, name string, results ...status.Verified) status.Verification {
		return status.Verification{Cluster: cluster, Node: name, Results: results}
	}
	text, failed := verifiedText([]status.Verification{node("g1", "a", good, bad, skipped), node("g1", "b", good, bad, skipped), node("g3", "c", good)})
	const want = `g1/a: 1 of 2 names answered
g1/b: 1 of 2 names answered
g3/c: 1 of 1 name answered

g2.web.shop.svc.set (shop/web): connect to 242.2.0.9:80: i/o timeout
  from g1/a, g1/b

db.shop.svc.set (shop/db): not tried: no endpoint is ready
  from g1/a, g1/b

to do: run hawser diagnose --export shop/web, and meanwhile hawser verify again: it shows where the packets end
`
	if diff := cmp.Diff(want, text); diff != "" || !failed {
		t.Errorf("failed: %t (-want +got)\n%s", failed, diff)
	}
	if text, failed := verifiedText([]status.Verification{node("g1", "a", good, skipped)}); failed {
		t.Errorf("nothing failed:\n%s", text)
	}
}
