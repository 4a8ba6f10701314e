package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

func clustersetDisruption(f Field) string {
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
		return epochBreakage(f)
	case "domain":
		return "every name changes"
	case "dynamicExports.namespaces":
		return fewerNamespaces(f)
	case "dynamicExports[].clusters":
		return fewerClusters(f)
	case "dns.address", "dns.ipv6Address":
		return "resolvers that ask the old address get no answer"
	case "decommission":
		if f.Want != "" {
			return "exports that were made in the clusters end, and the DNS of clusters no longer asks Hawser; agents of clusters that leave take everything down"
		}
	}
	return ""
}

// fewerNamespaces says which exports that were made in the clusters may end.
func fewerNamespaces(f Field) string {
	if f.Want == "" {
		return "exports that were made in the clusters end"
	}
	want := strings.Split(f.Want, ", ")
	gone := slices.DeleteFunc(strings.Split(f.Have, ", "), func(p string) bool { return p == "" || slices.Contains(want, p) || slices.Contains(want, "*") })
	if len(gone) == 0 {
		return ""
	}
	return "exports that were made in namespaces " + strings.Join(gone, ", ") + " end, unless another pattern matches"
}

// fewerClusters says whose exports may end as namespaces are kept for some clusters.
func fewerClusters(f Field) string {
	had := map[string][]string{}
	for item := range strings.SplitSeq(f.Have, "; ") {
		where, who, _ := strings.Cut(item, ": ")
		had[where] = strings.Split(who, ", ")
	}
	kept := slices.DeleteFunc(strings.Split(f.Want, "; "), func(item string) bool {
		where, who, _ := strings.Cut(item, ": ")
		may, was := strings.Split(who, ", "), had[where]
		return item == "" || was != nil && !slices.ContainsFunc(was, func(cluster string) bool { return !slices.Contains(may, cluster) })
	})
	if len(kept) == 0 {
		return ""
	}
	return "exports that other clusters made end where only some may make them now (" + strings.Join(kept, "; ") + ")"
}

func clusterBreakage(e *Entry, f Field, want, have *fabric.Cluster) string {
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
		return dnsBreakage(e, f)
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
			return prefixBreakage(e, f, want, have)
		}
	}
	return ""
}

// prefixBreakage describes the effect of removed prefixes of a cluster. With globalnet, other
// clusters use addresses of its block instead, also for services.
func prefixBreakage(e *Entry, f Field, want, have *fabric.Cluster) string {
	left := removedPrefixes(want.PodCIDRs, have.PodCIDRs)
	if f.Name == "serviceCIDRs" {
		left = removedPrefixes(want.ServiceCIDRs, have.ServiceCIDRs)
	}
	hidden := slices.DeleteFunc(slices.Clone(left), func(p netip.Prefix) bool { return !have.IsGlobalnet(fabric.Family(p.Addr())) })
	switch {
	case len(hidden) < len(left):
		return "prefixes of " + e.Key + " are no longer known to the others"
	case f.Name == "podCIDRs" && len(left) > 0:
		return "pods in " + list(left) + " of " + e.Key + " no longer reach other clusters"
	}
	return ""
}

// movedMappings returns the pod prefixes whose global addresses change. Added and removed prefixes
// do not count.
func movedMappings(f Field) string {
	had := map[string]string{}
	for text := range strings.SplitSeq(f.Have, ", ") {
		pods, global, _ := strings.Cut(text, " as ")
		had[pods] = global
	}
	var moved []string
	for text := range strings.SplitSeq(f.Want, ", ") {
		pods, global, _ := strings.Cut(text, " as ")
		if before := had[pods]; before != "" && before != global {
			moved = append(moved, pods)
		}
	}
	return strings.Join(moved, ", ")
}

// dnsBreakage describes the effect on names in the cluster. Agents change from one DNS mode to
// another without a gap.
func dnsBreakage(e *Entry, f Field) string {
	if f.Want == fabric.DNSNone {
		return "pods of " + e.Key + " no longer resolve names of the clusterset, unless another DNS server resolves them"
	}
	return ""
}

func gatewayBreakage(f Field) string {
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

func exportBreakage(f Field) string {
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
		if lost := lostFrom(f); lost != "" {
			return "no longer open to " + lost
		}
	}
	return ""
}

// lostFrom names the clusters that an allow list takes the export away from.
func lostFrom(f Field) string {
	if f.Want == allClusters {
		return ""
	}
	if f.Have == allClusters {
		return "clusters other than " + f.Want
	}
	want := strings.Split(f.Want, ", ")
	lost := slices.DeleteFunc(strings.Split(f.Have, ", "), func(c string) bool { return slices.Contains(want, c) })
	return strings.Join(lost, ", ")
}

// epochBreakage reports that a change of key epochs breaks all tunnels, unless one epoch stays.
func epochBreakage(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	if slices.ContainsFunc(have, func(e string) bool { return slices.Contains(want, e) }) {
		return ""
	}
	return "no epoch stays: every tunnel ends until both its ends have the new keys"
}

// rotation describes the effect on links if epochs are added or removed and one stays.
func rotation(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	gone := slices.DeleteFunc(have, func(e string) bool { return slices.Contains(want, e) })
	if len(gone) == 0 {
		return makeBeforeBreakNote
	}
	return "no packet is lost if no link still uses epoch " + strings.Join(gone, ", ") + ": run hawser keys epochs"
}

// keyChanges reports whether the key of a remaining epoch changes, or no epoch remains.
func keyChanges(f Field) bool {
	have := map[string]string{}
	for entry := range strings.SplitSeq(f.Have, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		have[epoch] = key
	}
	stays := false
	for entry := range strings.SplitSeq(f.Want, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		if was, known := have[epoch]; known {
			stays = true
			if was != key {
				return true
			}
		}
	}
	return !stays
}
