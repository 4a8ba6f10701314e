package main

import (
	"fmt"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		families string
		flat     bool
		pods     string
		want     string
	}{
		{"ipv4", false, "", "172.31.2.11 by 172.31.2.1/24, 10.7.0.0/16 10.7.1.0/24, 10.77.0.0/16 10.77.0.1 10.77.0.10, https://172.31.2.10:6443"},
		{"ipv4", true, "10.16.0.0/16,11.16.0.0/16", "172.31.2.11 by 172.31.2.1/24, 11.16.0.0/16 11.16.1.0/24, 10.102.0.0/16 10.102.0.1 10.102.0.10, https://172.31.2.10:6443"},
		{"ipv4", true, "", "172.31.2.11 by 172.31.2.1/24, 10.12.0.0/16 10.12.1.0/24, 10.102.0.0/16 10.102.0.1 10.102.0.10, https://172.31.2.10:6443"},
		{"ipv6", false, "", "fd00:172:31:2::11 by fd00:172:31:2::1/64, fd00:10:7::/56 fd00:10:7:1::/64, " +
			"fd00:10:77::/112 fd00:10:77::1 fd00:10:77::a, https://[fd00:172:31:2::10]:6443"},
		{"ipv6", true, "", "fd00:172:31:2::11 by fd00:172:31:2::1/64, fd00:10:12::/56 fd00:10:12:1::/64, " +
			"fd00:10:102::/112 fd00:10:102::1 fd00:10:102::a, https://[fd00:172:31:2::10]:6443"},
		{"dual", false, "", "172.31.2.11,fd00:172:31:2::11 by 172.31.2.1/24,fd00:172:31:2::1/64, 10.7.0.0/16,fd00:10:7::/56 10.7.1.0/24,fd00:10:7:1::/64, " +
			"10.77.0.0/16,fd00:10:77::/112 10.77.0.1 10.77.0.10, https://172.31.2.10:6443"},
	} {
		t.Run(fmt.Sprintf("%s flat %t %s", tt.families, tt.flat, tt.pods), func(t *testing.T) {
			l := &Lab{Clusters: []string{"c1", "c2"}, Nodes: 1, Families: tt.families, Flat: tt.flat}
			var err error
			if l.Pods, err = parsePodPrefixes(tt.pods, len(l.Clusters)); err != nil {
				t.Fatal(err)
			}
			l.Machines = l.plan()
			n := l.Machines[3]
			have := fmt.Sprintf("%s by %s, %s %s, %s %s %s, %s", joinList(n.Addrs), joinList(l.routerPrefixes(2)), joinList(l.podPrefixes(2)), joinList(l.nodePodPrefixes(n)),
				joinList(l.servicePrefixes(2)), l.apiAddr(2), l.dnsAddr(2), l.apiServerURL(2))
			if have != tt.want {
				t.Errorf("have %s\nwant %s", have, tt.want)
			}
		})
	}
}

func TestChosen(t *testing.T) {
	for _, text := range []string{"10.16.0.0/16", "10.16.0.0/16,11.16.0.0/24", "10.16.0.0/16,11.16.1.0/16", "10.16.0.0/16,fd00::/16", "10.16.0.0/16,"} {
		if have, err := parsePodPrefixes(text, 2); err == nil {
			t.Errorf("%s is taken as %v", text, have)
		}
	}
}
