package schema

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

func TestGlobalnet(t *testing.T) {
	t.Parallel()
	type c struct{ name, mode, pods, services string }
	tests := []struct {
		name     string
		clusters []c
		want     map[string]bool
	}{
		{
			name:     "no overlap",
			clusters: []c{{"a", "auto", "10.8.0.0/16", "10.88.0.0/16"}, {"b", "auto", "10.9.0.0/16", "10.99.0.0/16"}},
			want:     map[string]bool{"a": false, "b": false},
		},
		{
			name: "a third cluster overlaps one",
			clusters: []c{
				{"a", "auto", "10.8.0.0/16", "10.88.0.0/16"}, {"b", "auto", "10.9.0.0/16", "10.99.0.0/16"},
				{"c", "auto", "10.8.128.0/17", "10.77.0.0/16"},
			},
			want: map[string]bool{"a": true, "b": false, "c": true},
		},
		{
			name:     "pods of one and services of another",
			clusters: []c{{"a", "auto", "10.8.0.0/16", "10.88.0.0/16"}, {"b", "auto", "10.88.1.0/24", "10.99.0.0/16"}},
			want:     map[string]bool{"a": true, "b": true},
		},
		{
			name: "all equal",
			clusters: []c{
				{"a", "auto", "10.7.0.0/16", "10.77.0.0/16"}, {"b", "auto", "10.7.0.0/16", "10.77.0.0/16"},
				{"c", "auto", "10.7.0.0/16", "10.77.0.0/16"},
			},
			want: map[string]bool{"a": true, "b": true, "c": true},
		},
		{
			name:     "an overlap inside one cluster is none",
			clusters: []c{{"a", "auto", "10.8.0.0/16", "10.8.0.0/24"}, {"b", "auto", "10.9.0.0/16", "10.99.0.0/16"}},
			want:     map[string]bool{"a": false, "b": false},
		},
		{
			name: "always and never",
			clusters: []c{
				{"a", "always", "10.8.0.0/16", "10.88.0.0/16"}, {"b", "never", "10.9.0.0/16", "10.99.0.0/16"},
				{"c", "auto", "10.9.0.0/16", "10.100.0.0/16"},
			},
			want: map[string]bool{"a": true, "b": false, "c": true},
		},
		{
			name: "a small prefix between siblings",
			clusters: []c{
				{"a", "auto", "10.0.0.0/9", "172.16.0.0/16"}, {"b", "auto", "10.5.0.0/24", "172.17.0.0/16"},
				{"c", "auto", "10.6.0.0/24", "172.18.0.0/16"}, {"d", "auto", "10.128.0.0/9", "fd00::/64"},
			},
			want: map[string]bool{"a": true, "b": true, "c": true, "d": false},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := &ClusterSet{}
			for _, c := range tt.clusters {
				set.Spec.Clusters = append(set.Spec.Clusters, Cluster{
					Name: c.name, Globalnet: c.mode,
					PodCIDRs:     []netip.Prefix{netip.MustParsePrefix(c.pods)},
					ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(c.services)},
				})
			}
			if d := cmp.Diff(tt.want, set.Globalnet()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestTunnelOf(t *testing.T) {
	t.Parallel()
	set := &ClusterSet{}
	Default(set)
	off := fabric.Duration(0)
	own := &Cluster{Tunnel: TunnelOverride{Driver: "vxlan", Port: 4500, MTU: 1400, Keepalive: &off}}
	if got := set.GatewayPort(&Cluster{}, &Gateway{}); got != 51820 {
		t.Errorf("port of the set: want 51820, got %d", got)
	}
	if got := set.GatewayPort(own, &Gateway{}); got != 4500 {
		t.Errorf("port of the cluster: want 4500, got %d", got)
	}
	if got := set.GatewayPort(own, &Gateway{Port: 1}); got != 1 {
		t.Errorf("port of the gateway: want 1, got %d", got)
	}
	tunnel := set.TunnelOf(own)
	if tunnel.Driver != "vxlan" || tunnel.MTU != 1400 || time.Duration(*tunnel.Keepalive) != 0 || tunnel.CIDR != set.Spec.Tunnel.CIDR {
		t.Errorf("override is not in force: %+v", tunnel)
	}
}

func TestDemands(t *testing.T) {
	t.Parallel()
	set, _, list := Load("x.yaml", example(t))
	if len(list) > 0 {
		t.Fatal(list)
	}
	want := map[string]Demand{
		"g1": {Egress: 8, Rules: 2},
		"g2": {Egress: 8, Exports: 1, Hosts: 8},
		"g3": {Egress: 8},
	}
	if d := cmp.Diff(want, set.Demands()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

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
	_, src, _ := Load("f.yaml", raw)
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
		_, src, _ := Load("f.yaml", []byte(raw))
		if got := src.Pos("clusters[g1]"); got.IsValid() || got.File != "f.yaml" {
			t.Errorf("%q: want the file alone, got %v", raw, got)
		}
	}
}
