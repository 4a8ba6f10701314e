package load

import (
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"

	"hawser.dev/hawser/schema/validate"
)

// large returns a topology with the given numbers of clusters and exports. The prefixes of the
// clusters are distinct, or equal with same.
func large(tb testing.TB, clusters, exports int, same bool) []byte {
	tb.Helper()
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: large}\nspec:\n  clusters:\n")
	for i := range clusters {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			tb.Fatal(err)
		}
		pods, services := fmt.Sprintf("10.%d.%d.0/24", i/250, i%250), fmt.Sprintf("11.%d.%d.0/24", i/250, i%250)
		if same {
			pods, services = "10.7.0.0/16", "10.77.0.0/16"
		}
		fmt.Fprintf(&out, "  - name: c%d\n    podCIDRs: [%s]\n    serviceCIDRs: [%s]\n    recipient: %s\n    gateways:\n",
			i, pods, services, identity.Recipient())
		for g := range 2 {
			fmt.Fprintf(&out, "    - name: g%d\n      node: node-%d\n      endpoints: [198.18.%d.%d]\n      port: %d\n",
				g, g, i/250, i%250, 51820+g)
		}
	}
	out.WriteString("  exports:\n")
	for i := range exports {
		fmt.Fprintf(&out, "  - name: s%d\n    namespace: ns%d\n    clusters: [c%d, c%d]\n    ports:\n"+
			"    - {name: http, port: 80, protocol: TCP}\n    - {name: metrics, port: 9090}\n",
			i, i%100, i%clusters, (i+1)%clusters)
	}
	return []byte(out.String())
}

// BenchmarkLoad times Topology, which must take much less than a second.
func BenchmarkLoad(b *testing.B) {
	for _, same := range []bool{false, true} {
		b.Run(fmt.Sprintf("clusters=1000/exports=10000/overlap=%t", same), func(b *testing.B) {
			raw := large(b, 1000, 10000, same)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, list := Topology("x.yaml", raw); len(list) > 0 {
					b.Fatal(list[:min(len(list), 3)])
				}
			}
		})
	}
}

// BenchmarkValidate times the part of BenchmarkLoad without YAML.
func BenchmarkValidate(b *testing.B) {
	set, _, _ := Topology("x.yaml", large(b, 1000, 10000, true))
	b.ReportAllocs()
	for b.Loop() {
		validate.Topology(set)
	}
}
