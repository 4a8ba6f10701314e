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

// markDisruptions sets what each entry breaks, and the effect on open connections. Entries that are
// added or removed with their cluster or export are described there. shape describes the effect of
// a change of the shape.
func (p *Plan) markDisruptions(want, have *snapshot, shape string) {
	whole := map[string]diff.Op{}
	for _, e := range p.Entries {
		if e.Kind == kindCluster || e.Kind == kindExport {
			whole[e.Kind+" "+e.Key] = e.Op
		}
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		export, _, _ := strings.Cut(e.Key, " in ")
		byCluster := e.Kind != kindCluster && whole[kindCluster+" "+e.Cluster] == e.Op
		byExport := e.Kind == kindPart && whole[kindExport+" "+export] == e.Op
		if (e.Op == diff.Create || e.Op == diff.Delete) && (byCluster || byExport) {
			continue
		}
		switch {
		case e.Kind == kindAgents:
			e.Disruptive = restarts(e, want, have)
		case e.Disruptive == "":
			disruption(e, shape, want.fabric.Cluster(e.Cluster), have.fabric.Cluster(e.Cluster))
		}
		if e.Disruptive != "" {
			p.Summary.Disruptive++
		}
	}
}

// disruption sets what an entry breaks, and for which clusters; nothing if connections continue.
// The clusters are the entry's, or nil.
func disruption(e *Entry, shape string, want, have *fabric.Cluster) {
	if e.Op == diff.Delete {
		e.Disruptive = removal(e)
	}
	if e.Op == diff.Create && e.Kind == kindEgress {
		e.Disruptive = otherEgress
	}
	if e.Op == diff.Delete || e.Op == diff.Create {
		if e.Kind == kindEgress {
			e.ends, e.may = otherEgress, true
		}
		return
	}
	var reasons, ends []string
	e.may = true
	for _, f := range e.Fields {
		r := fieldDisruption(e, f, want, have)
		if e.Kind == kindClusterset && f.Name == "connectivity" {
			r = shape
		}
		if r != "" && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
			if moves(e, f) {
				ends = append(ends, r)
				e.may = e.may && survivesMove(e, f, want, have)
			}
		}
		if isTunnelField(e, f) {
			e.Remark = makeBeforeBreakNote
		}
		if e.Kind == kindClusterset && f.Name == "keys.epochs" && r == "" {
			e.Remark = rotation(f)
		}
	}
	if e.Kind == kindGateway && len(reasons) > 0 {
		e.Remark = "" // restarted links keep no old tunnel
	}
	for _, f := range e.Fields {
		if e.Kind == kindGateway && f.Name == "endpoints" && e.Remark == "" {
			e.Remark = foundBy(f)
		}
	}
	e.Disruptive, e.ends = strings.Join(reasons, "; "), strings.Join(ends, "; ")
}

// foundBy describes a change of the sources from which other clusters learn a gateway's endpoints,
// empty if none.
func foundBy(f Field) string {
	sources := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, ", "), func(one string) bool { return !fabric.IsEndpointSource(one) })
	}
	want, have := sources(f.Want), sources(f.Have)
	without := func(all, those []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(those, one) }), " and ")
	}
	switch more, less := without(want, have), without(have, want); {
	case more != "" && less != "":
		return "others find it by " + more + " from now on, and no longer by " + less
	case more != "" && len(have) > 0:
		return "others find it by " + more + ", too"
	case more != "":
		return "others find it by " + more + " from now on"
	case less != "" && len(want) > 0:
		return "others no longer find it by " + less
	case less != "" && f.Want == "":
		return "others no longer find it by " + less + ": it only dials out"
	case less != "":
		return "others no longer find it by " + less + ": only the written addresses count"
	case !slices.Equal(want, have):
		return "others try its addresses in another order"
	}
	return ""
}

// moves reports whether a disruptive field changes or removes addresses of open connections.
func moves(e *Entry, f Field) bool {
	var fields []string
	switch e.Kind {
	case kindCluster:
		fields = []string{"podCIDRs", "serviceCIDRs", "globalnet", "globalCIDRs", "egress mode", "egressIPs", "mappings"}
	case kindEgress:
		fields = []string{"namespace", "matchLabels", "ips"}
	case kindExport:
		fields = []string{"type", "clusterset IPs"}
	case kindPart:
		fields = []string{"global IPs", "hosts"}
	}
	return slices.Contains(fields, f.Name)
}

// survivesMove reports whether open connections may continue although a field moves their
// addresses: gateways keep the flows that they translate, and the addresses still belong to the
// cluster. Other clusters send no packets to a block that belongs to another cluster or to none,
// nor to a removed prefix.
func survivesMove(e *Entry, f Field, want, have *fabric.Cluster) bool {
	if want != nil && have != nil && len(removedPrefixes(want.GlobalCIDRs, have.GlobalCIDRs)) > 0 {
		return false
	}
	return e.Kind != kindCluster || f.Name == "egressIPs" || f.Name == "egress mode" || f.Name == "mappings" || !wasFlat(want, have)
}

// wasFlat reports whether a cluster's pods had their own addresses in a family in which a prefix is
// removed, or which uses globalnet now.
func wasFlat(want, have *fabric.Cluster) bool {
	left := removedPrefixes(slices.Concat(want.PodCIDRs, want.ServiceCIDRs), slices.Concat(have.PodCIDRs, have.ServiceCIDRs))
	return slices.ContainsFunc([]int{4, 6}, func(family int) bool {
		return have.Has(family) && !have.IsGlobalnet(family) && (want.IsGlobalnet(family) ||
			slices.ContainsFunc(left, func(p netip.Prefix) bool { return fabric.Family(p.Addr()) == family }))
	})
}

// removedPrefixes returns the previous prefixes that are inside of no new one.
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

// maxLost is the maximum number of listed pairs without a path.
const maxLost = 4

// lostPaths lists the clusters that lose the path to each other by the new shape.
func lostPaths(lost [][2]string) string {
	if len(lost) == 0 {
		return ""
	}
	var names []string
	for _, l := range lost[:min(len(lost), maxLost)] {
		names = append(names, l[0]+" and "+l[1])
	}
	if more := len(lost) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d pairs more", more))
	}
	return strings.Join(names, ", ") + " lose the path to each other"
}

const otherEgress = "its pods go out with other addresses"

func removal(e *Entry) string {
	switch e.Kind {
	case kindClusterset:
		return "the clusterset has another name, and with it all keys change"
	case kindCluster:
		return "everything between " + e.Key + " and the other clusters ends"
	case kindGateway:
		return "its links end; what went through it moves to another gateway of " + e.Cluster
	case kindEgress:
		return otherEgress
	case kindExport:
		return "the name is gone for every cluster"
	case kindPart:
		return "connections to its backends in " + e.Cluster + " end"
	}
	return ""
}

// fieldDisruption describes what the change of one field breaks. The clusters are the entry's, or
// nil.
func fieldDisruption(e *Entry, f Field, want, have *fabric.Cluster) string {
	switch e.Kind {
	case kindClusterset:
		return clustersetDisruption(f)
	case kindCluster:
		return clusterBreakage(e, f, want, have)
	case kindGateway:
		return gatewayBreakage(f)
	case kindPair:
		if f.Name == "mtu" {
			return "the MTU of the link changes: large packets of open connections may be lost once"
		}
	case kindEgress:
		if f.Name != "ips" || !onlyAdds(f) {
			return otherEgress
		}
	case kindExport:
		return exportBreakage(f)
	case kindPart:
		if (f.Name == "global IPs" || f.Name == "hosts") && !onlyAdds(f) {
			return "its global addresses move"
		}
	}
	return ""
}

// onlyAdds reports whether all previous elements remain and others were added.
func onlyAdds(f Field) bool {
	if f.Have == "" {
		return true
	}
	want := strings.Split(f.Want, ", ")
	for have := range strings.SplitSeq(f.Have, ", ") {
		if !slices.ContainsFunc(want, func(w string) bool { return w == have || covers(w, have) }) {
			return false
		}
	}
	return true
}

// covers reports whether the range want contains the whole range have. Ranges of hosts ("*-0 to
// *-7: first-last") must begin with the same host at the same address.
func covers(want, have string) bool {
	wantHost, wantRange, isHost := strings.Cut(want, ": ")
	haveHost, haveRange, _ := strings.Cut(have, ": ")
	if !isHost {
		wantHost, wantRange, haveHost, haveRange = "", want, "", have
	}
	wLo, wHi, ok := bounds(wantRange)
	hLo, hHi, ok2 := bounds(haveRange)
	if !ok || !ok2 || wLo.BitLen() != hLo.BitLen() || wHi.Less(hHi) {
		return false
	}
	if isHost {
		first := func(label string) string { name, _, _ := strings.Cut(label, " "); return name }
		return first(wantHost) == first(haveHost) && wLo == hLo
	}
	return !hLo.Less(wLo)
}

// bounds reads an address or a range first-last.
func bounds(text string) (lo, hi netip.Addr, ok bool) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	lo, err := netip.ParseAddr(first)
	hi, err2 := netip.ParseAddr(last)
	return lo, hi, errors.Join(err, err2) == nil
}
