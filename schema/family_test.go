package schema

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func familySet(pods ...[]string) *ClusterSet {
	s := &ClusterSet{Metadata: Metadata{Name: "demo"}}
	for i, texts := range pods {
		c := Cluster{Name: fmt.Sprintf("g%d", i+1)}
		for _, text := range texts {
			c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix(text))
		}
		s.Spec.Clusters = append(s.Spec.Clusters, c)
	}
	return s
}

// TestDefaultFamilies checks that Default sets pools only in the families of the clusters.
func TestDefaultFamilies(t *testing.T) {
	t.Parallel()
	const four, six = "[242.0.0.0/8] [243.0.0.0/16] [241.0.0.0/16] 169.254.73.53 invalid IP",
		"[fd7d:475f:cc8e::/48] [fdca:2b12:ef2d:1::/64] [fdca:2b12:ef2d:2::/64] invalid IP fd68:6177:7365:72::53"
	const both = "[242.0.0.0/8 fd7d:475f:cc8e::/48] [243.0.0.0/16 fdca:2b12:ef2d:1::/64] [241.0.0.0/16 fdca:2b12:ef2d:2::/64]" +
		" 169.254.73.53 fd68:6177:7365:72::53"
	for _, tt := range []struct {
		name string
		set  *ClusterSet
		want string
	}{
		{"no prefix at all", familySet(nil, nil), four},
		{"IPv4", familySet([]string{"10.7.0.0/16"}, nil), four},
		{"IPv6", familySet([]string{"fd00:7::/56"}, []string{"fd00:8::/56"}), six},
		{"one of each", familySet([]string{"10.7.0.0/16"}, []string{"fd00:8::/56"}), both},
		{"dual stack", familySet([]string{"10.7.0.0/16", "fd00:8::/56"}), both},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // Default is idempotent
				Default(tt.set)
				s := tt.set
				have := fmt.Sprint(s.GlobalPools(), s.ServicePools(), s.TunnelPools(), s.Spec.DNS.Address, s.Spec.DNS.IPv6Address)
				if diff := cmp.Diff(tt.want, have); diff != "" {
					t.Fatalf("(-want +got)\n%s", diff)
				}
			}
		})
	}
}

// TestUniqueLocal checks that the pools have the form of RFC 4193 and are distinct.
func TestUniqueLocal(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 1000 {
		p := uniqueLocal(fmt.Sprint(i), 2, 64)
		if !netip.MustParsePrefix("fd00::/8").Contains(p.Addr()) || p.Masked() != p {
			t.Fatalf("%s is not a unique local prefix", p)
		}
		seen[p.String()] = true
	}
	if len(seen) != 1000 {
		t.Errorf("got %d distinct prefixes, want 1000", len(seen))
	}
}
