package conntrack

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// staleFlow is a flow whose conntrack entry predates a link change.
type staleFlow struct {
	Flow
	local bool  // a pod on this node initiated it; other nodes refresh their own flows
	ttl   uint8 // of the refresh packet, which expires after the gateway that forwards the flow
}

// staleEntries are the entries that a link change invalidated.
type staleEntries struct {
	stale    []staleFlow
	crossed  []Flow
	halfOpen []Flow
}

// flowKey identifies a flow by protocol, and by address and port of the pod and of the remote
// end, as the gateway sees them. Sources are untranslated, destinations are translated.
type flowKey struct {
	protocol    uint8
	pod, remote netip.AddrPort
}

// staleFinder selects the stale entries of one conntrack dump.
type staleFinder struct {
	staleEntries
	changes    map[string][]*linkChange
	clusters   *lookup
	pods       *lookup
	keepSource *lookup

	outbound map[flowKey]bool // flows that pods of this node initiated
	inbound  []inboundEntry
	others   []staleFlow // flows of local pods that are not stale but leave with another port
}

// inboundEntry is an entry that a packet from a remote cluster to a pod of this node created.
type inboundEntry struct {
	Flow
	stale bool // ignored if the entry is crossed
}

func findStale(ctx context.Context, changes []*linkChange, own LocalPods) (staleEntries, error) {
	s := staleFinder{changes: map[string][]*linkChange{}, clusters: newLookup(), pods: newLookup(), keepSource: newLookup(), outbound: map[flowKey]bool{}}
	for _, t := range changes {
		s.changes[t.cluster] = append(s.changes[t.cluster], t)
		s.clusters.add(t.cluster, t.prefixes)
	}
	s.pods.add("", own.Pods)
	s.keepSource.add("", own.KeepSource)
	err := list(ctx, s.check)
	s.match()
	return s.staleEntries, err
}

func (s *staleFinder) check(f *Flow) {
	from, came := s.clusters.find(f.Orig.From.Addr())
	to, goes := s.clusters.find(f.Reply.From.Addr())
	is, changes := false, s.changes[to]
	switch {
	case came:
		changes = s.changes[from]
		is = s.checkInbound(f, changes)
	case goes:
		is = s.checkOutbound(f, changes)
	}
	if !is && f.halfOpen() && slices.ContainsFunc(changes, (*linkChange).isFirst) {
		s.halfOpen = append(s.halfOpen, *f)
	}
}

// checkInbound records the entry of a flow from a remote cluster. It reports whether the entry is
// stale.
func (s *staleFinder) checkInbound(f *Flow, changes []*linkChange) (is bool) {
	_, pod := s.pods.find(f.Reply.From.Addr())
	_, keeps := s.keepSource.find(f.Reply.From.Addr())
	local := pod && f.Mark == 0
	handedBack := false
	for _, t := range changes {
		is = is || local && t.isFirst() && t.isStaleBackend(f)
		handedBack = handedBack || !local && !keeps && t.cameFromSibling(f)
	}
	if handedBack {
		s.stale = append(s.stale, staleFlow{Flow: *f})
		return true
	}
	if local && affectsLocalPods(changes) {
		s.inbound = append(s.inbound, inboundEntry{*f, is})
	}
	return is
}

// checkOutbound records the entry of a flow to a remote cluster. It reports whether the entry is
// stale.
func (s *staleFinder) checkOutbound(f *Flow, changes []*linkChange) (is bool) {
	_, pod := s.pods.find(f.Orig.From.Addr())
	pod = pod && f.Mark == 0
	_, keeps := s.keepSource.find(f.Orig.From.Addr())
	local := pod || f.Mark == 0 && f.Orig.To != f.Reply.From
	for _, t := range changes {
		w, stale := t.checkStale(f, local, keeps)
		switch {
		case stale && !is:
			is = true
			s.stale = append(s.stale, w)
		case !stale && !t.fromNodesOnly && pod && f.otherPort():
			s.others = append(s.others, w)
		}
	}
	if pod && affectsLocalPods(changes) {
		s.outbound[flowKey{f.Protocol, f.Orig.From, f.Reply.From}] = true
	}
	return is
}

// affectsLocalPods reports whether the changes affect flows of this node's own pods.
func affectsLocalPods(changes []*linkChange) bool {
	return slices.ContainsFunc(changes, func(t *linkChange) bool { return !t.fromNodesOnly })
}

// match finds the crossed entries, and the flows that lost their port to a crossed entry.
func (s *staleFinder) match() {
	echoed, backends := map[flowKey]bool{}, []staleFlow(nil)
	for i := range s.inbound {
		f := &s.inbound[i]
		if between := (flowKey{f.Protocol, f.Reply.From, f.Orig.From}); s.outbound[between] {
			echoed[between] = true
			s.crossed = append(s.crossed, f.Flow)
		} else if f.stale {
			backends = append(backends, staleFlow{Flow: f.Flow})
		}
	}
	s.stale = append(backends, s.stale...)
	for i := range s.others {
		if f := &s.others[i]; echoed[flowKey{f.Protocol, f.Orig.From, f.Reply.From}] {
			s.stale = append(s.stale, *f)
		}
	}
}

// isStaleBackend reports whether a packet by the other path created the entry of a flow to a
// local pod. Packets through another gateway arrive with the pod's address as destination. In
// flat clusters, a flow to the pod's own address looks the same and is also rebuilt.
func (t *linkChange) isStaleBackend(f *Flow) bool {
	return !t.fromNodesOnly && t.nowOwn == (f.Orig.To == f.Reply.From)
}

// cameFromSibling reports whether a sibling gateway translated the packet that created this
// entry. The flow's pod is on another node. While this gateway had no link, it handed the flow
// to the sibling, but the replies arrived at this gateway. Because of the entry, the pod's
// packets would now enter the link untranslated.
func (t *linkChange) cameFromSibling(f *Flow) bool { return t.nowOwn && f.Orig.To == f.Reply.From }

// checkStale reports whether a flow's entry has the source address of the other path. It also
// returns the flow with the TTL of its refresh packet.
func (t *linkChange) checkStale(f *Flow, local, keeps bool) (w staleFlow, is bool) {
	w = staleFlow{Flow: *f, local: local, ttl: hops}
	if t.nowOwn {
		w.ttl = hops - 1 // this host does not forward its own packets
	}
	if t.fromNodesOnly && local {
		return w, false
	}
	if t.nowOwn {
		return w, f.keepsSource() && !keeps
	}
	// Translated flows of other nodes are not stale here. The other gateway handles them. They
	// reach it directly, or still arrive here and leave by this gateway's link.
	return w, local && !f.keepsSource()
}

// lookup maps prefixes to names, for longest prefix match. A search needs one map access per
// prefix length; the number of prefixes does not matter.
type lookup struct {
	names   map[netip.Prefix]string
	lengths []int // of prefixes, plus lengthIPv6 for IPv6; in descending order
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

// find returns the name of the longest prefix that contains the address.
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
