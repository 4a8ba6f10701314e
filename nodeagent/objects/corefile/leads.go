package corefile

import (
	"slices"
	"strings"
)

// clusterDNS is what NodeLocal DNSCache puts the address of the cluster's own DNS for.
const clusterDNS = "__PILLAR__CLUSTER__DNS__"

// Lacks reports whether the Corefile of a cache before the cluster's own DNS sends
// questions for a domain past both the name servers of the clusterset and that DNS: no
// server block is for the domain, and the root's forwards elsewhere. What cannot be read
// lacks nothing.
func Lacks(text, domain string) bool {
	all, imports, err := parse(text, "")
	if err != nil || imports {
		return false
	}
	lacks := false
	for _, s := range all {
		for _, key := range s.keys {
			switch a := addressOf(key.text); {
			case a.scheme != "dns":
			case slices.Contains(a.zones(), domain):
				return false
			case a.zone == "":
				lacks = !slices.ContainsFunc(s.body, func(t token) bool { return t.text == clusterDNS })
			}
		}
	}
	return lacks
}

// ImportsServers reports whether a Corefile takes server blocks from files whose names end
// in .server, as those of k3s (/etc/coredns/custom/*.server) and AKS (custom/*.server) do.
// What cannot be read imports nothing.
func ImportsServers(text string) bool {
	all := tokens(text)
	for len(all) > 0 {
		if all[0].text != "import" || !all[0].first {
			_, rest, err := next(all, text)
			if err != nil {
				return false
			}
			all = rest
			continue
		}
		rest := skipLine(all)
		for _, file := range all[1 : len(all)-len(rest)] {
			if strings.HasSuffix(file.text, "/*.server") {
				return true
			}
		}
		all = rest
	}
	return false
}
