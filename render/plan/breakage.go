package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

func clustersetEffect(f Field) string {
	switch f.Name {
	case "globalnet.cidr", "services.cidr", "tunnel.cidr":
		return f.Name + " changes: addresses outside the new pool move"
	case "tunnel.ipsec":
		if f.Have != "" && f.Want != "" {
			return "all IPsec links restart"
		}
	case "tunnel.mtu":
		return "the MTU of every tunnel changes: large packets of open connections may be lost once"
	case "keys.epochs":
		return epochEffect(f)
	case "domain":
		return "every name changes"
	case "dynamicExports.namespaces":
		return namespacesEffect(f)
	case "dynamicExports[].clusters":
		return restrictionsEffect(f)
	case "dns.address", "dns.ipv6Address":
		return "resolvers that ask the old address get no answer"
	case "decommission":
		if f.Want != "" {
			return "exports that were made in the clusters end, and the DNS of clusters no longer asks Hawser; agents of clusters that leave take everything down"
		}
	}
	return ""
}

// namespacesEffect describes the dynamic exports that can end because a pattern was removed.
func namespacesEffect(f Field) string {
	if f.Want == "" {
		return "exports that were made in the clusters end"
	}
	want := strings.Split(f.Want, ", ")
	removed := slices.DeleteFunc(strings.Split(f.Have, ", "), func(p string) bool { return p == "" || slices.Contains(want, p) || slices.Contains(want, "*") })
	if len(removed) == 0 {
		return ""
	}
	return "exports that were made in namespaces " + strings.Join(removed, ", ") + " end, unless another pattern matches"
}

// restrictionsEffect describes the dynamic exports that can end because fewer clusters may export
// these namespaces.
func restrictionsEffect(f Field) string {
	before := map[string][]string{}
	for item := range strings.SplitSeq(f.Have, "; ") {
		namespaces, clusters, _ := strings.Cut(item, ": ")
		before[namespaces] = strings.Split(clusters, ", ")
	}
	tightened := slices.DeleteFunc(strings.Split(f.Want, "; "), func(item string) bool {
		namespaces, clusters, _ := strings.Cut(item, ": ")
		allowed, allowedBefore := strings.Split(clusters, ", "), before[namespaces]
		return item == "" || allowedBefore != nil && !slices.ContainsFunc(allowedBefore, func(cluster string) bool { return !slices.Contains(allowed, cluster) })
	})
	if len(tightened) == 0 {
		return ""
	}
	return "exports that other clusters made end where only some may make them now (" + strings.Join(tightened, "; ") + ")"
}

func clusterEffect(e *Entry, f Field, want, have *fabric.Cluster) string {
	switch f.Name {
	case "globalnet":
		if wasFlat(want, have) {
			return fmt.Sprintf("%s changes from %s to %s: connections to and from its own pod and service addresses end, for every other cluster",
				e.Key, f.Have, f.Want)
		}
		return fmt.Sprintf("%s changes from %s to %s: its pods go out with their own addresses", e.Key, f.Have, f.Want)
	case "globalCIDRs":
		return "the global addresses of " + e.Key + " move"
	case "egress mode":
		if slices.ContainsFunc([]int{4, 6}, have.IsGlobalnet) {
			return "pods of " + e.Key + " go out with other addresses"
		}
	case "dns":
		return dnsEffect(e, f)
	case "dynamic exports":
		if f.Have != "" && f.Want != "" {
			return "the addresses of exports that were made in " + e.Key + " move"
		}
	case "egressIPs":
		if !onlyAdds(f) && f.Want != "" {
			return "egress addresses of " + e.Key + " move"
		}
	case "mappings":
		if moved := movedMappings(f); moved != "" {
			return "egress addresses of pods in " + moved + " of " + e.Key + " move"
		}
	case "podCIDRs", "serviceCIDRs":
		if !onlyAdds(f) {
			return prefixEffect(e, f, want, have)
		}
	}
	return ""
}

// prefixEffect describes the effect of removed prefixes of a cluster. With globalnet, other
// clusters do not use these prefixes but addresses of the global block, also for services.
func prefixEffect(e *Entry, f Field, want, have *fabric.Cluster) string {
	removed := removedPrefixes(want.PodCIDRs, have.PodCIDRs)
	if f.Name == "serviceCIDRs" {
		removed = removedPrefixes(want.ServiceCIDRs, have.ServiceCIDRs)
	}
	removedGlobal := slices.DeleteFunc(slices.Clone(removed), func(p netip.Prefix) bool { return !have.IsGlobalnet(fabric.Family(p.Addr())) })
	switch {
	case len(removedGlobal) < len(removed):
		return "prefixes of " + e.Key + " are no longer known to the others"
	case f.Name == "podCIDRs" && len(removed) > 0:
		return "pods in " + join(removed) + " of " + e.Key + " no longer reach other clusters"
	}
	return ""
}

// movedMappings returns the pod prefixes whose global addresses change. It ignores added and
// removed prefixes.
func movedMappings(f Field) string {
	before := map[string]string{}
	for text := range strings.SplitSeq(f.Have, ", ") {
		pods, global, _ := strings.Cut(text, " as ")
		before[pods] = global
	}
	var moved []string
	for text := range strings.SplitSeq(f.Want, ", ") {
		pods, global, _ := strings.Cut(text, " as ")
		if previous := before[pods]; previous != "" && previous != global {
			moved = append(moved, pods)
		}
	}
	return strings.Join(moved, ", ")
}

// dnsEffect describes the effect on names in the cluster. Between two DNS modes agents change
// without a gap.
func dnsEffect(e *Entry, f Field) string {
	if f.Want == fabric.DNSNone {
		return "pods of " + e.Key + " no longer resolve names of the clusterset, unless another DNS server resolves them"
	}
	return ""
}

func gatewayEffect(f Field) string {
	switch f.Name {
	case "public keys":
		if keyChanges(f) {
			return "its tunnel key changes: its links restart"
		}
	case "IKE keys":
		if f.Have != "" && keyChanges(f) {
			return "its IKE key changes: its IPsec links, if any, restart"
		}
	case "addresses":
		return "its tunnel address changes: its links restart"
	case "node":
		return "it moves to another node: its links restart"
	}
	return ""
}

func exportEffect(f Field) string {
	switch f.Name {
	case "type":
		return "type changes: its name resolves to other addresses"
	case "clusterset IPs":
		if f.Have != "" {
			return "clusterset IP changes"
		}
	case "ports":
		if !onlyAdds(f) {
			return "a port is gone or changes"
		}
	case "allow":
		if lost := removedClusters(f); lost != "" {
			return "no longer open to " + lost
		}
	}
	return ""
}

// removedClusters returns the clusters that lose access to an export by a new allow list.
func removedClusters(f Field) string {
	if f.Want == allClusters {
		return ""
	}
	if f.Have == allClusters {
		return "clusters other than " + f.Want
	}
	want := strings.Split(f.Want, ", ")
	removed := slices.DeleteFunc(strings.Split(f.Have, ", "), func(c string) bool { return slices.Contains(want, c) })
	return strings.Join(removed, ", ")
}

// epochEffect describes the disruption of all tunnels if no key epoch stays; empty if one stays.
func epochEffect(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	if slices.ContainsFunc(have, func(e string) bool { return slices.Contains(want, e) }) {
		return ""
	}
	return "no epoch stays: every tunnel ends until both its ends have the new keys"
}

// rotationEffect describes the effect of added or removed key epochs on links, if one epoch stays.
func rotationEffect(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	removed := slices.DeleteFunc(have, func(e string) bool { return slices.Contains(want, e) })
	if len(removed) == 0 {
		return makeBeforeBreakNote
	}
	return "no packet is lost if no link still uses epoch " + strings.Join(removed, ", ") + ": run hawser keys epochs"
}

// keyChanges reports whether the key of a remaining epoch changes, or no epoch remains.
func keyChanges(f Field) bool {
	have := map[string]string{}
	for entry := range strings.SplitSeq(f.Have, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		have[epoch] = key
	}
	remains := false
	for entry := range strings.SplitSeq(f.Want, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		if previous, known := have[epoch]; known {
			remains = true
			if previous != key {
				return true
			}
		}
	}
	return !remains
}
