package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// disrupt fills in what each entry breaks. What comes or goes with its cluster
// or its export is told there. shape is what a change of the shape breaks.
func (p *Plan) disrupt(want, have *side, shape string) {
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
			e.Disruptive = disruption(e, shape)
		}
		if e.Disruptive != "" {
			p.Summary.Disruptive++
		}
	}
}

// disruption says what an entry breaks, and for whom; empty when connections live on.
func disruption(e *Entry, shape string) string {
	if e.Op == diff.Delete {
		return removal(e)
	}
	if e.Op == diff.Create {
		if e.Kind == kindEgress {
			return otherEgress
		}
		return ""
	}
	var reasons []string
	for _, f := range e.Fields {
		r := breakage(e, f)
		if e.Kind == kindClusterset && f.Name == "connectivity" {
			r = shape
		}
		if r != "" && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
		if carried(e, f) {
			e.Note = proven
		}
		if e.Kind == kindClusterset && f.Name == "keys.epochs" && r == "" {
			e.Note = rotation(f)
		}
	}
	if e.Kind == kindGateway && len(reasons) > 0 {
		e.Note = "" // links that begin anew hold no former cable
	}
	return strings.Join(reasons, "; ")
}

// carried reports whether a field is of a cable, which agents replace without a
// loss (docs/gateways.md).
func carried(e *Entry, f Field) bool {
	switch e.Kind {
	case kindClusterset:
		return f.Name == "tunnel.driver"
	case kindPair:
		return f.Name == "driver" || f.Name == "port"
	}
	return e.Kind == kindGateway && f.Name == "port"
}

// maxLost is how many pairs without a way are named.
const maxLost = 4

// lostWays names the clusters that the shape takes the way to each other from.
func lostWays(lost [][2]string) string {
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
	return strings.Join(names, ", ") + " have no way to each other any more"
}

const otherEgress = "its pods go out with other addresses, and their open connections may end"

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

// breakage says what the change of one field breaks.
func breakage(e *Entry, f Field) string {
	switch e.Kind {
	case kindClusterset:
		return clustersetBreakage(f)
	case kindCluster:
		return clusterBreakage(e, f)
	case kindGateway:
		return gatewayBreakage(f)
	case kindPair:
		if f.Name == "mtu" {
			return "the MTU of the link changes: large packets of open connections may be lost once"
		}
	case kindEgress:
		if f.Name != "ips" || !keeps(f) {
			return otherEgress
		}
	case kindExport:
		return exportBreakage(f)
	case kindPart:
		if (f.Name == "global IPs" || f.Name == "hosts") && !keeps(f) {
			return "its global addresses move, and connections to them may end"
		}
	}
	return ""
}

// keeps reports whether everything that was there still is, and something was only added.
func keeps(f Field) bool {
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

// covers reports whether the range want holds all of the range have. Ranges of
// hosts ("*-0 to *-7: first-last") must begin with the same host at the same address.
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
