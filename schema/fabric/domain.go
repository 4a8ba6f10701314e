package fabric

import (
	"slices"
	"strconv"
	"strings"
)

// ClusterDomain is the default DNS domain of a cluster.
const ClusterDomain = "cluster.local"

// clusterNames are the children of a cluster's DNS domain that Kubernetes answers (Kubernetes
// DNS-Based Service Discovery; CoreDNS has its NS record below dns).
var clusterNames = []string{"svc", "pod", "dns", "dns-version"}

// CanonicalDomain returns a domain in lower case and without dots at its ends.
func CanonicalDomain(domain string) string {
	return strings.ToLower(strings.Trim(domain, "."))
}

// DomainConflict returns the reason why a cluster's DNS must not forward a domain of the
// clusterset; empty if it may. others are domains of the same clusterset. clusterDomains are DNS
// domains of clusters, in addition to ClusterDomain. It ignores case and a trailing dot.
func DomainConflict(domain string, others []string, clusterDomains ...string) string {
	domain = CanonicalDomain(domain)
	switch {
	case domain == "":
		return "is the root of the DNS"
	case domain == "arpa":
		return "contains the reverse zones"
	case isBelow(domain, "in-addr.arpa"), isBelow(domain, "ip6.arpa"):
		return "is a reverse zone"
	}
	for _, clusterDomain := range append([]string{ClusterDomain}, clusterDomains...) {
		clusterDomain = CanonicalDomain(clusterDomain)
		switch {
		case clusterDomain == "": // the DNS of this cluster answers every name
		case domain == clusterDomain:
			return "is the DNS domain of a cluster"
		case isBelow(clusterDomain, domain):
			return "contains " + clusterDomain + ", the DNS domain of a cluster"
		case slices.ContainsFunc(clusterNames, func(label string) bool { return isBelow(domain, label+"."+clusterDomain) }):
			return "hides names of " + clusterDomain + ", the DNS domain of a cluster"
		}
	}
	for _, other := range others {
		other = CanonicalDomain(other)
		switch {
		case domain == other:
			return "is a domain of the clusterset already"
		case isBelow(domain, "svc."+other):
			return "hides names of " + strconv.Quote(other) + ", a domain of the clusterset"
		case isBelow(other, "svc."+domain):
			return "has names that " + strconv.Quote(other) + ", a domain of the clusterset, hides"
		}
	}
	return ""
}

// isBelow reports whether a domain equals parent or is below it.
func isBelow(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// LongestName returns the longest DNS name of a Service of the clusterset over all of its
// domains. before are the labels in front of the Service's name, such as a pod and a cluster.
func LongestName(domains []string, namespace, service string, labels ...string) string {
	longest := ""
	for _, d := range domains {
		if len(d) > len(longest) {
			longest = d
		}
	}
	return strings.Join(append(slices.Clone(labels), service, namespace, "svc", longest), ".")
}
