package corefile

import "slices"

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
