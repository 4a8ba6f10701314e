package validate

import (
	"fmt"
	"slices"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// TestErrorBehindWarnings checks that clusters that vxlan cannot link are an error, however many
// warnings precede it.
func TestErrorBehindWarnings(t *testing.T) {
	t.Parallel()
	top := &schema.ClusterSet{Spec: schema.Spec{Clusters: make([]schema.Cluster, diag.MaxFindings+1)}}
	for i := range top.Spec.Clusters {
		endpoint := fmt.Sprintf("192.0.2.%d", i+1)
		if i == 0 {
			endpoint = "2001:db8::1"
		}
		top.Spec.Clusters[i] = schema.Cluster{Name: fmt.Sprintf("g%d", i), Recipient: "age1", Tunnel: schema.TunnelOverride{Driver: fabric.DriverVXLAN},
			Gateways: []schema.Gateway{{Name: "gw", Node: "n", Endpoints: []string{endpoint}}}}
	}
	schema.Default(top)
	isError := func(d diag.Diagnostic) bool { return d.Code == "endpoint-family" && d.Severity == diag.Error }
	if list := Topology(top); !slices.ContainsFunc(list, isError) {
		t.Error("have no error, want endpoint-family")
	}
}
