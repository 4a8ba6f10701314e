package load

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
)

func TestSourcePos(t *testing.T) {
	t.Parallel()
	raw := []byte(`apiVersion: hawser.dev/v1alpha1
metadata: {name: demo}
spec:
  dns: {ttl: 5s}
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16, "fd00::/48"]
    gateways:
    - name: a
      node: n1
  - name: g1
    podCIDRs: [10.8.0.0/16]
  exports:
  - namespace: sample
    name: web
    ports:
    - {port: 80}
    balance: {weights: {g1: 3}}
    hostnames: [x, y]
  - name: nameless
`)
	_, src, _ := Topology("f.yaml", raw)
	tests := []struct {
		path string
		want diag.Pos
	}{
		{"metadata.name", diag.Pos{Line: 2, Column: 18, Width: 4}},
		{"dns.ttl", diag.Pos{Line: 4, Column: 14, Width: 2}},
		{"dns.address", diag.Pos{Line: 4, Column: 8, Width: 9}},
		{"tunnel.port", diag.Pos{Line: 4, Column: 3, Width: 14}},
		{"clusters[g1]", diag.Pos{Line: 6, Column: 5, Width: 8}},
		{"clusters[g1].podCIDRs", diag.Pos{Line: 7, Column: 15, Width: 26}},
		{"clusters[g1].podCIDRs[1]", diag.Pos{Line: 7, Column: 29, Width: 11}},
		{"clusters[g1].podCIDRs[7]", diag.Pos{Line: 7, Column: 15, Width: 26}},
		{"clusters[g1].gateways[a].node", diag.Pos{Line: 10, Column: 13, Width: 2}},
		{"clusters[g1].gateways[b].node", diag.Pos{Line: 9, Column: 5, Width: 9}},
		{"clusters[1].podCIDRs[0]", diag.Pos{Line: 12, Column: 16, Width: 11}},
		{"exports[sample/web].ports[0].name", diag.Pos{Line: 17, Column: 7, Width: 10}},
		{"exports[sample/web].balance.weights[g1]", diag.Pos{Line: 18, Column: 25, Width: 2}},
		{"exports[sample/web].hostnames[1]", diag.Pos{Line: 19, Column: 20, Width: 1}},
		{"exports[1].name", diag.Pos{Line: 20, Column: 11, Width: 8}},
		{"kind", diag.Pos{Line: 1, Column: 1, Width: 31}},
		{"]", diag.Pos{Line: 4, Column: 3, Width: 14}},
		{"", diag.Pos{Line: 1, Column: 1, Width: 31}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			tt.want.File = "f.yaml"
			if d := cmp.Diff(tt.want, src.Pos(tt.path)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestSourcePosWithoutDocument(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "a: [", "\x00"} {
		_, src, _ := Topology("f.yaml", []byte(raw))
		if got := src.Pos("clusters[g1]"); got.IsValid() || got.File != "f.yaml" {
			t.Errorf("%q: want the file alone, got %v", raw, got)
		}
	}
}
