package allocate

import (
	"fmt"
	"strings"
	"testing"

	"hawser.dev/hawser/schema/load"
)

// TestPoolExhausted checks that the default pool has room for 128 mapped clusters with equal CIDRs.
// The finding for the next cluster contains the setting that adds room. With the setting all
// clusters fit.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n  globalnet: {cidr: 242.0.0.0/8}\n  clusters:\n")
	for i := range 130 {
		fmt.Fprintf(&text, "  - {name: g%03d, podCIDRs: [10.7.0.0/16], serviceCIDRs: [10.77.0.0/16], "+
			"recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250, gateways: [{name: a, node: n1, endpoints: [192.0.2.%d]}]}\n", i, i)
	}
	top, _, list := load.Topology("clusterset.yaml", []byte(text.String()))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	_, list = Allocate(top, nil)
	if len(list) != 2 || list[0].Path != "clusters[g128]" || list[1].Path != "clusters[g129]" {
		t.Fatalf("want a finding for each of the last two clusters, have %v", list)
	}
	const summary = "no room for its block in the pool 242.0.0.0/8, which holds 128 of /15: 128 blocks are in use, 0 reserved for removed clusters"
	const hint = "in a /15 each pod has its own address: use a larger globalnet.cidr, " +
		"or globalnet: {egress: shared}, with which the pool holds 16384 of /22"
	if list[0].Summary != summary || list[0].Hint != hint {
		t.Errorf("have\n%s\n%s", list[0].Summary, list[0].Hint)
	}
	top, _, list = load.Topology("clusterset.yaml", []byte(strings.Replace(text.String(), "/8}", "/8, egress: shared}", 1)))
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	if _, list = Allocate(top, nil); len(list) > 0 {
		t.Errorf("the clusters do not fit with egress: shared: %v", list)
	}
}
