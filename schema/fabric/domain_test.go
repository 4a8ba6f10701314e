package fabric_test

import (
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

func TestDomainConflict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		domain, want string
		others       []string
		clusters     []string
	}{
		{domain: "clusterset.local"},
		{domain: "example.com", others: []string{"clusterset.local"}},
		{domain: "notlocal"},
		{domain: "mycluster.local"},
		{domain: "set.cluster.local"},
		{domain: "xsvc.cluster.local"},
		{domain: "home.arpa"},
		{domain: "xin-addr.arpa"},
		{domain: "", want: "is the root of the DNS"},
		{domain: ".", want: "is the root of the DNS"},
		{domain: "arpa", want: "contains the reverse zones"},
		{domain: "in-addr.arpa", want: "is a reverse zone"},
		{domain: "10.IN-ADDR.arpa.", want: "is a reverse zone"},
		{domain: "0.0.d.f.ip6.arpa", want: "is a reverse zone"},
		{domain: ".local..", want: "contains cluster.local, the DNS domain of a cluster"},
		{domain: "ip6.arpa.", want: "is a reverse zone"},
		{domain: "local", want: "contains cluster.local, the DNS domain of a cluster"},
		{domain: "Local.", want: "contains cluster.local, the DNS domain of a cluster"},
		{domain: "cluster.local", want: "is the DNS domain of a cluster"},
		{domain: "CLUSTER.local.", want: "is the DNS domain of a cluster"},
		{domain: "svc.cluster.local", want: "hides names of cluster.local, the DNS domain of a cluster"},
		{domain: "default.svc.cluster.local", want: "hides names of cluster.local, the DNS domain of a cluster"},
		{domain: "pod.cluster.local", want: "hides names of cluster.local, the DNS domain of a cluster"},
		{domain: "dns-version.cluster.local", want: "hides names of cluster.local, the DNS domain of a cluster"},
		{domain: "cluster.local", clusters: []string{"k8s.example"}, want: "is the DNS domain of a cluster"},
		{domain: "k8s.example", clusters: []string{"K8S.example."}, want: "is the DNS domain of a cluster"},
		{domain: "example", clusters: []string{"k8s.example"}, want: "contains k8s.example, the DNS domain of a cluster"},
		{domain: "a.svc.k8s.example", clusters: []string{"k8s.example"}, want: "hides names of k8s.example, the DNS domain of a cluster"},
		{domain: "set.k8s.example", clusters: []string{"", ".", "k8s.example"}},
		{domain: "clusterset.local.", others: []string{"a.example", "Clusterset.local"}, want: "is a domain of the clusterset already"},
		{domain: "a.clusterset.local", others: []string{"clusterset.local"}},
		{domain: "example", others: []string{"a.example"}},
		{domain: "a.svc.clusterset.local", others: []string{"clusterset.local"}, want: `hides names of "clusterset.local", a domain of the clusterset`},
		{domain: "example", others: []string{"svc.example"}, want: `has names that "svc.example", a domain of the clusterset, hides`},
	} {
		if have := fabric.DomainConflict(tt.domain, tt.others, tt.clusters...); have != tt.want {
			t.Errorf("DomainConflict(%q, %q, %q) = %q, want %q", tt.domain, tt.others, tt.clusters, have, tt.want)
		}
	}
}
