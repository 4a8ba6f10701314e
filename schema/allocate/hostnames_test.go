package allocate_test

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
)

// TestHeadlessWithoutHostnames checks that only pods that share egress addresses need hostnames.
// With mapped egress and in flat clusters every pod is reachable, like pods of dynamic exports.
func TestHeadlessWithoutHostnames(t *testing.T) {
	t.Parallel()
	const topology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  globalnet: {egress: EGRESS}
  clusters:
  - name: g1
    podCIDRs: [10.1.0.0/16]
    serviceCIDRs: [10.101.0.0/16]
    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250
    gateways: [{name: a, node: n1, endpoints: [192.0.2.1]}]
  - name: g2
    podCIDRs: [10.1.0.0/16]
    serviceCIDRs: [10.102.0.0/16]
    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp
    gateways: [{name: a, node: n1, endpoints: [192.0.2.2]}]
  exports:
  - {name: web, namespace: sample, clusters: [g1], ports: [{name: http, port: 80}], type: Headless}
`
	mapped := strings.Replace(topology, "EGRESS", "auto", 1)
	shared := strings.Replace(topology, "EGRESS", "shared", 1)
	for name, test := range map[string]struct {
		topology string
		warned   bool
	}{
		"mapped":           {mapped, false},
		"shared":           {shared, true},
		"small block":      {strings.Replace(mapped, "egress: auto", "clusterPrefix: 24", 1), true},
		"hostnames":        {strings.Replace(shared, "type: Headless", "type: Headless, hostnames: 2", 1), false},
		"flat":             {strings.Replace(shared, "10.1.0.0", "10.2.0.0", 1), false},
		"no headless type": {strings.Replace(shared, "type: Headless", "type: ClusterSetIP", 1), false},
	} {
		top, _, list := load.Topology("clusterset.yaml", []byte(test.topology))
		if list.HasErrors() {
			t.Fatalf("%s: %v", name, list)
		}
		_, list = allocate.Allocate(top, nil)
		if warned := slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Code == "no-hostnames" }); warned != test.warned {
			t.Errorf("%s: warned %v, want %v: %v", name, warned, test.warned, list)
		}
	}
}
