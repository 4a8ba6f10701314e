package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// markDisruptions sets the disruption and the effect on open connections of each entry. It skips an
// entry that is added or removed with its cluster or export. shape describes the effect of a change
// of the shape.
func (p *Plan) markDisruptions(want, have *snapshot, shape string) {
	ops := map[string]diff.Op{}
	for _, e := range p.Entries {
		if e.Kind == kindCluster || e.Kind == kindExport {
			ops[e.Kind+" "+e.Key] = e.Op
		}
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		export, _, _ := strings.Cut(e.Key, " in ")
		byCluster := e.Kind != kindCluster && ops[kindCluster+" "+e.Cluster] == e.Op
		byExport := e.Kind == kindClusterExport && ops[kindExport+" "+export] == e.Op
		if (e.Op == diff.Create || e.Op == diff.Delete) && (byCluster || byExport) {
			continue
		}
		switch {
		case e.Kind == kindAgents:
			e.Disruptive = restartEffect(e, want, have)
		case e.Disruptive == "":
			setDisruption(e, shape, want.fabric.Cluster(e.Cluster), have.fabric.Cluster(e.Cluster))
		}
		if e.Disruptive != "" {
			p.Summary.Disruptive++
		}
	}
}

// setDisruption sets the disruption of an entry; empty if connections continue. want and have are
// the entry's cluster; nil = absent.
func setDisruption(e *Entry, shape string, want, have *fabric.Cluster) {
	if e.Op == diff.Delete {
		e.Disruptive = removalEffect(e)
	}
	if e.Op == diff.Create && e.Kind == kindEgress {
		e.Disruptive = otherEgressNote
	}
	if e.Op == diff.Delete || e.Op == diff.Create {
		if e.Kind == kindEgress {
			e.breaks, e.mayContinue = otherEgressNote, true
		}
		return
	}
	var reasons, ends []string
	e.mayContinue = true
	for _, f := range e.Fields {
		r := fieldEffect(e, f, want, have)
		if e.Kind == kindClusterset && f.Name == "connectivity" {
			r = shape
		}
		if r != "" && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
			if movesAddresses(e, f) {
				ends = append(ends, r)
				e.mayContinue = e.mayContinue && survivesMove(e, f, want, have)
			}
		}
		if isTunnelField(e, f) {
			e.Remark = makeBeforeBreakNote
		}
		if e.Kind == kindClusterset && f.Name == "keys.epochs" && r == "" {
			e.Remark = rotationEffect(f)
		}
	}
	if e.Kind == kindGateway && len(reasons) > 0 {
		e.Remark = "" // restarted links keep no old tunnel
	}
	for _, f := range e.Fields {
		if e.Kind == kindGateway && f.Name == "endpoints" && e.Remark == "" {
			e.Remark = sourcesEffect(f)
		}
	}
	e.Disruptive, e.breaks = strings.Join(reasons, "; "), strings.Join(ends, "; ")
}

// sourcesEffect describes a change of the sources from which other clusters learn a gateway's
// endpoints; empty if they do not change.
func sourcesEffect(f Field) string {
	sources := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, ", "), func(one string) bool { return !fabric.IsEndpointSource(one) })
	}
	want, have := sources(f.Want), sources(f.Have)
	missing := func(all, those []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(those, one) }), " and ")
	}
	switch added, removed := missing(want, have), missing(have, want); {
	case added != "" && removed != "":
		return "others find it by " + added + " from now on, and no longer by " + removed
	case added != "" && len(have) > 0:
		return "others find it by " + added + ", too"
	case added != "":
		return "others find it by " + added + " from now on"
	case removed != "" && len(want) > 0:
		return "others no longer find it by " + removed
	case removed != "" && f.Want == "":
		return "others no longer find it by " + removed + ": it only dials out"
	case removed != "":
		return "others no longer find it by " + removed + ": only the written addresses count"
	case !slices.Equal(want, have):
		return "others try its addresses in another order"
	}
	return ""
}

// movesAddresses reports whether a disruptive field changes or removes addresses of open
// connections.
func movesAddresses(e *Entry, f Field) bool {
	var fields []string
	switch e.Kind {
	case kindCluster:
		fields = []string{"podCIDRs", "serviceCIDRs", "globalnet", "globalCIDRs", "egress mode", "egressIPs", "mappings"}
	case kindEgress:
		fields = []string{"namespace", "matchLabels", "ips"}
	case kindExport:
		fields = []string{"type", "clusterset IPs"}
	case kindClusterExport:
		fields = []string{"global IPs", "hosts"}
	}
	return slices.Contains(fields, f.Name)
}

// survivesMove reports whether open connections can continue although a field moves their
// addresses. They continue if gateways keep the flows that they translate, and the addresses still
// belong to the cluster. Other clusters send no packets to a removed prefix, or to a block of
// another cluster or of none.
func survivesMove(e *Entry, f Field, want, have *fabric.Cluster) bool {
	if want != nil && have != nil && len(removedPrefixes(want.GlobalCIDRs, have.GlobalCIDRs)) > 0 {
		return false
	}
	return e.Kind != kindCluster || f.Name == "egressIPs" || f.Name == "egress mode" || f.Name == "mappings" || !wasFlat(want, have)
}

// wasFlat reports whether a cluster's pods had their own addresses in a family that changes. The
// family changes if a prefix is removed or the family now uses globalnet.
func wasFlat(want, have *fabric.Cluster) bool {
	removed := removedPrefixes(slices.Concat(want.PodCIDRs, want.ServiceCIDRs), slices.Concat(have.PodCIDRs, have.ServiceCIDRs))
	return slices.ContainsFunc([]int{4, 6}, func(family int) bool {
		return have.Has(family) && !have.IsGlobalnet(family) && (want.IsGlobalnet(family) ||
			slices.ContainsFunc(removed, func(p netip.Prefix) bool { return fabric.Family(p.Addr()) == family }))
	})
}

// removedPrefixes returns the prefixes in have that no prefix in want contains.
func removedPrefixes(want, have []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(have), func(h netip.Prefix) bool {
		return slices.ContainsFunc(want, func(w netip.Prefix) bool { return w.Bits() <= h.Bits() && w.Contains(h.Addr()) })
	})
}

// isTunnelField reports whether a field belongs to a tunnel. Agents replace tunnels without packet
// loss (docs/gateways.md).
func isTunnelField(e *Entry, f Field) bool {
	switch e.Kind {
	case kindClusterset:
		return f.Name == "tunnel.driver"
	case kindPair:
		return f.Name == "driver" || f.Name == "port"
	}
	return e.Kind == kindGateway && f.Name == "port"
}

// maxListedPairs is the maximum number of listed pairs without a path.
const maxListedPairs = 4

// lostPaths returns the pairs of clusters that lose their path to each other, as text.
func lostPaths(lost [][2]string) string {
	if len(lost) == 0 {
		return ""
	}
	var names []string
	for _, l := range lost[:min(len(lost), maxListedPairs)] {
		names = append(names, l[0]+" and "+l[1])
	}
	if more := len(lost) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d pairs more", more))
	}
	return strings.Join(names, ", ") + " lose the path to each other"
}

const otherEgressNote = "its pods go out with other addresses"

func removalEffect(e *Entry) string {
	switch e.Kind {
	case kindClusterset:
		return "the clusterset has another name, and with it all keys change"
	case kindCluster:
		return "everything between " + e.Key + " and the other clusters ends"
	case kindGateway:
		return "its links end; what went through it moves to another gateway of " + e.Cluster
	case kindEgress:
		return otherEgressNote
	case kindExport:
		return "the name is gone for every cluster"
	case kindClusterExport:
		return "connections to its backends in " + e.Cluster + " end"
	}
	return ""
}

// fieldEffect describes the disruption by the change of one field. want and have are the entry's
// cluster; nil = absent.
func fieldEffect(e *Entry, f Field, want, have *fabric.Cluster) string {
	switch e.Kind {
	case kindClusterset:
		return clustersetEffect(f)
	case kindCluster:
		return clusterEffect(e, f, want, have)
	case kindGateway:
		return gatewayEffect(f)
	case kindPair:
		if f.Name == "mtu" {
			return "the MTU of the link changes: large packets of open connections may be lost once"
		}
	case kindEgress:
		if f.Name != "ips" || !onlyAdds(f) {
			return otherEgressNote
		}
	case kindExport:
		return exportEffect(f)
	case kindClusterExport:
		if (f.Name == "global IPs" || f.Name == "hosts") && !onlyAdds(f) {
			return "its global addresses move"
		}
	}
	return ""
}

// onlyAdds reports whether all previous elements remain.
func onlyAdds(f Field) bool {
	if f.Have == "" {
		return true
	}
	want := strings.Split(f.Want, ", ")
	for have := range strings.SplitSeq(f.Have, ", ") {
		if !slices.ContainsFunc(want, func(w string) bool { return w == have || rangeCovers(w, have) }) {
			return false
		}
	}
	return true
}

// rangeCovers reports whether the range want contains the whole range have. Ranges of hosts ("*-0
// to *-7: first-last") must begin with the same host at the same address.
func rangeCovers(want, have string) bool {
	wantHost, wantRange, isHost := strings.Cut(want, ": ")
	haveHost, haveRange, _ := strings.Cut(have, ": ")
	if !isHost {
		wantHost, wantRange, haveHost, haveRange = "", want, "", have
	}
	wLo, wHi, ok := parseRange(wantRange)
	hLo, hHi, ok2 := parseRange(haveRange)
	if !ok || !ok2 || wLo.BitLen() != hLo.BitLen() || wHi.Less(hHi) {
		return false
	}
	if isHost {
		first := func(label string) string { name, _, _ := strings.Cut(label, " "); return name }
		return first(wantHost) == first(haveHost) && wLo == hLo
	}
	return !hLo.Less(wLo)
}

// parseRange parses an address or a range first-last.
func parseRange(text string) (lo, hi netip.Addr, ok bool) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	lo, err := netip.ParseAddr(first)
	hi, err2 := netip.ParseAddr(last)
	return lo, hi, errors.Join(err, err2) == nil
}
