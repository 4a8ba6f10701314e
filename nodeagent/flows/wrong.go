package flows

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// wrongFlow has an entry from before the turn.
type wrongFlow struct {
	Flow
	local bool  // begun by a pod on this node; others knock from theirs
	ttl   uint8 // ends behind the gateway that carries
}

// findings are the entries that a turn left wrong.
type findings struct {
	wrong  []wrongFlow
	echoes []Flow
	halves []Flow
}

// ends are a pod's end of a flow to a cluster and the far one, as the gateway sees it.
type ends struct {
	protocol uint8
	pod, far netip.AddrPort
}

// finder looks for them.
type finder struct {
	findings
	turns    map[string][]*turn
	clusters *lookup
	pods     *lookup
	kept     *lookup

	asked   map[ends]bool // flows that pods of this node began
	answers []answer
	others  []wrongFlow // flows of pods of this node that have another port
}

// answer is an entry that began with a packet from a cluster to a pod of this node.
type answer struct {
	Flow
	wrong bool // unless it is an echo
}

func findWrong(ctx context.Context, turns []*turn, own Own) (findings, error) {
	s := finder{turns: map[string][]*turn{}, clusters: newLookup(), pods: newLookup(), kept: newLookup(), asked: map[ends]bool{}}
	for _, t := range turns {
		s.turns[t.cluster] = append(s.turns[t.cluster], t)
		s.clusters.add(t.cluster, t.prefixes)
	}
	s.pods.add("", own.Pods)
	s.kept.add("", own.Kept)
	err := list(ctx, s.look)
	s.match()
	return s.findings, err
}

func (s *finder) look(f *Flow) {
	from, came := s.clusters.find(f.Orig.From.Addr())
	to, goes := s.clusters.find(f.Reply.From.Addr())
	is, turns := false, s.turns[to]
	switch {
	case came:
		turns = s.turns[from]
		is = s.answer(f, turns)
	case goes:
		is = s.question(f, turns)
	}
	if !is && f.halfOpen() && slices.ContainsFunc(turns, (*turn).fresh) {
		s.halves = append(s.halves, *f)
	}
}

// answer looks at the entry of a flow from a cluster.
func (s *finder) answer(f *Flow, turns []*turn) (is bool) {
	_, pod := s.pods.find(f.Reply.From.Addr())
	_, keeps := s.kept.find(f.Reply.From.Addr())
	local := pod && f.Mark == 0
	handedBack := false
	for _, t := range turns {
		is = is || local && t.fresh() && t.wrongBackend(f)
		handedBack = handedBack || !local && !keeps && t.handedBack(f)
	}
	if handedBack {
		s.wrong = append(s.wrong, wrongFlow{Flow: *f})
		return true
	}
	if local && turnsPods(turns) {
		s.answers = append(s.answers, answer{*f, is})
	}
	return is
}

// question looks at the entry of a flow to a cluster.
func (s *finder) question(f *Flow, turns []*turn) (is bool) {
	_, pod := s.pods.find(f.Orig.From.Addr())
	pod = pod && f.Mark == 0
	_, keeps := s.kept.find(f.Orig.From.Addr())
	local := pod || f.Mark == 0 && f.Orig.To != f.Reply.From
	for _, t := range turns {
		w, wrong := t.wrong(f, local, keeps)
		switch {
		case wrong && !is:
			is = true
			s.wrong = append(s.wrong, w)
		case !wrong && !t.others && pod && f.otherPort():
			s.others = append(s.others, w)
		}
	}
	if pod && turnsPods(turns) {
		s.asked[ends{f.Protocol, f.Orig.From, f.Reply.From}] = true
	}
	return is
}

// turnsPods reports whether the flows of this node's own pods turned.
func turnsPods(turns []*turn) bool {
	return slices.ContainsFunc(turns, func(t *turn) bool { return !t.others })
}

// match finds the echoes among the answers, and the flows that lost their port to one.
func (s *finder) match() {
	echoed, backends := map[ends]bool{}, []wrongFlow(nil)
	for i := range s.answers {
		f := &s.answers[i]
		if between := (ends{f.Protocol, f.Reply.From, f.Orig.From}); s.asked[between] {
			echoed[between] = true
			s.echoes = append(s.echoes, f.Flow)
		} else if f.wrong {
			backends = append(backends, wrongFlow{Flow: f.Flow})
		}
	}
	s.wrong = append(backends, s.wrong...)
	for i := range s.others {
		if f := &s.others[i]; echoed[ends{f.Protocol, f.Orig.From, f.Reply.From}] {
			s.wrong = append(s.wrong, *f)
		}
	}
}

// wrongBackend reports whether the entry of a flow to a pod here was made by the
// other way: what comes over another gateway has the pod's address already. A flow
// straight to a pod (flat clusters) looks the same and is made anew as well.
func (t *turn) wrongBackend(f *Flow) bool {
	return !t.others && t.own == (f.Orig.To == f.Reply.From)
}

// handedBack reports whether the entry of a flow to another node's pod was made by a packet that
// another gateway had translated. That one got the flow from this gateway while this one had no
// link, and sent its answers back here. What the pod sends would go untranslated into the link.
func (t *turn) handedBack(f *Flow) bool { return t.own && f.Orig.To == f.Reply.From }

// wrong reports whether a flow's entry holds the source of the other way.
func (t *turn) wrong(f *Flow, local, keeps bool) (w wrongFlow, is bool) {
	w = wrongFlow{Flow: *f, local: local, ttl: hops}
	if t.own {
		w.ttl = hops - 1 // this host does not forward its own packets
	}
	if t.others && local {
		return w, false
	}
	if t.own {
		return w, f.kept() && !keeps
	}
	// A translated flow of another node is that node's business: it goes to the
	// other gateway itself, or still comes here and leaves by this gateway's link.
	return w, local && !f.kept()
}

// lookup finds the name that a prefix belongs to. Each length of prefix costs one
// look, however many prefixes there are.
type lookup struct {
	names   map[netip.Prefix]string
	lengths []int // of IPv4 prefixes; IPv6 from 1000 up; the longest first
}

const lengthIPv6 = 1000

func newLookup() *lookup { return &lookup{names: map[netip.Prefix]string{}} }

func (l *lookup) add(name string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		l.names[p.Masked()] = name
	}
	lengths := map[int]bool{}
	for p := range l.names {
		length := p.Bits()
		if p.Addr().Is6() {
			length += lengthIPv6
		}
		lengths[length] = true
	}
	l.lengths = slices.Sorted(maps.Keys(lengths))
	slices.Reverse(l.lengths)
}

// find gives the name of the longest prefix that holds the address.
func (l *lookup) find(a netip.Addr) (string, bool) {
	for _, length := range l.lengths {
		if a.Is6() != (length >= lengthIPv6) {
			continue
		}
		p, err := a.Prefix(length % lengthIPv6)
		if err != nil {
			continue
		}
		if name, ok := l.names[p]; ok {
			return name, true
		}
	}
	return "", false
}
