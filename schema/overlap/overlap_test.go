package overlap

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema"
)

// TestMappedFamilies checks that only the overlapping family of a cluster is mapped.
func TestMappedFamilies(t *testing.T) {
	t.Parallel()
	s := &schema.ClusterSet{}
	for i, texts := range [][]string{{"10.7.0.0/16", "fd00:1::/56"}, {"10.7.0.0/16", "fd00:2::/56"}, {"fd00:2::/64"}, {"10.9.0.0/16"}} {
		c := schema.Cluster{Name: fmt.Sprintf("g%d", i+1)}
		for _, text := range texts {
			c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix(text))
		}
		s.Spec.Clusters = append(s.Spec.Clusters, c)
	}
	schema.Default(s)
	s.Spec.Clusters[3].Globalnet = schema.GlobalnetAlways
	want := map[string]Families{
		"g1": {IPv4: true}, "g2": {IPv4: true, IPv6: true}, "g3": {IPv6: true}, "g4": {IPv4: true, IPv6: true},
	}
	if diff := cmp.Diff(want, MappedFamilies(s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

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
			name:     "an overlap inside one cluster does not count",
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
			set := &schema.ClusterSet{}
			for _, c := range tt.clusters {
				set.Spec.Clusters = append(set.Spec.Clusters, schema.Cluster{
					Name: c.name, Globalnet: c.mode,
					PodCIDRs:     []netip.Prefix{netip.MustParsePrefix(c.pods)},
					ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(c.services)},
				})
			}
			if d := cmp.Diff(tt.want, MappedClusters(set)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
