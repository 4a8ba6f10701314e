package project

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// answer is one address by which a backend's callers may know it: what a server
// sends first through a gateway that never saw the connection has to leave with
// it.
type answer struct {
	family int
	id     string // backend's address, protocol and port
	as     string // address and port
	origin string
}

// answersAs notes that callers of a backend know it by an address and port of
// this cluster's block.
func (v *view) answersAs(backend netip.Addr, protocol string, port int, as netip.Addr, asPort int, origin string) {
	if v.gateway == nil {
		return
	}
	// What a flat cluster's pod sends first over UDP may as well be a question of
	// its own, and its source is to be kept.
	if v.direct(backend) && !strings.EqualFold(protocol, "TCP") {
		return
	}
	id := serviceKey(backend, protocol, port)
	v.answers = append(v.answers, answer{family: fabric.Family(backend), id: id, as: targetText(as, asPort), origin: origin})
	if strings.EqualFold(protocol, "UDP") {
		v.elements.add(desired.Element{Set: desired.SetServed, Family: fabric.Family(backend), ID: id, Origin: origin})
	}
}

// direct reports whether other clusters reach a pod at its own address.
func (v *view) direct(pod netip.Addr) bool {
	return !v.own.Hides(fabric.Family(pod)) && slices.ContainsFunc(v.own.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(pod) })
}

// addAnswers tells the gateways as whom each backend answers. One that several
// addresses lead to is named as such: to guess wrong would end the connection,
// to wait delays it until its client speaks.
func (v *view) addAnswers() {
	slices.SortFunc(v.answers, func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.id, b.id), cmp.Compare(a.as, b.as), cmp.Compare(a.origin, b.origin))
	})
	for i := 0; i < len(v.answers); {
		first, last := v.answers[i], v.answers[i]
		for ; i < len(v.answers) && v.answers[i].family == first.family && v.answers[i].id == first.id; i++ {
			last = v.answers[i]
		}
		if first.as != last.as {
			v.elements.add(desired.Element{Set: desired.SetAmbiguous, Family: first.family, ID: first.id, Origin: last.origin})
			continue
		}
		v.elements.add(desired.Element{
			Set: desired.SetReverse, Family: first.family, ID: first.id, Value: first.as, Origin: first.origin,
		})
	}
}
