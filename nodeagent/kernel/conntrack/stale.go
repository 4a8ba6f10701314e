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
	clusters   *prefixTable
	pods       *prefixTable
	keepSource *prefixTable

	outbound    map[flowKey]bool // flows that pods of this node initiated
	inbound     []inboundEntry
	portChanged []staleFlow // flows of local pods that are not stale but leave with another port
}

// inboundEntry is an entry that a packet from a remote cluster to a pod of this node created.
type inboundEntry struct {
	Flow
	stale bool // ignored for a crossed entry
}

func findStale(ctx context.Context, changes []*linkChange, local LocalPods) (staleEntries, error) {
	finder := staleFinder{changes: map[string][]*linkChange{}, clusters: newPrefixTable(), pods: newPrefixTable(), keepSource: newPrefixTable(), outbound: map[flowKey]bool{}}
	for _, change := range changes {
		finder.changes[change.cluster] = append(finder.changes[change.cluster], change)
		finder.clusters.add(change.cluster, change.prefixes)
	}
	finder.pods.add("", local.Pods)
	finder.keepSource.add("", local.KeepSource)
	err := listFlows(ctx, finder.checkFlow)
	finder.matchCrossed()
	return finder.staleEntries, err
}

func (s *staleFinder) checkFlow(f *Flow) {
	from, inbound := s.clusters.find(f.Orig.From.Addr())
	to, outbound := s.clusters.find(f.Reply.From.Addr())
	stale, changes := false, s.changes[to]
	switch {
	case inbound:
		changes = s.changes[from]
		stale = s.checkInbound(f, changes)
	case outbound:
		stale = s.checkOutbound(f, changes)
	}
	if !stale && f.halfOpen() && slices.ContainsFunc(changes, (*linkChange).isFirst) {
		s.halfOpen = append(s.halfOpen, *f)
	}
}

// checkInbound records the entry of a flow from a remote cluster. It reports whether the entry is
// stale.
func (s *staleFinder) checkInbound(f *Flow, changes []*linkChange) (stale bool) {
	_, isPod := s.pods.find(f.Reply.From.Addr())
	_, keepsSource := s.keepSource.find(f.Reply.From.Addr())
	local := isPod && f.Mark == 0
	fromSibling := false
	for _, change := range changes {
		stale = stale || local && change.isFirst() && change.isStaleBackend(f)
		fromSibling = fromSibling || !local && !keepsSource && change.cameFromSibling(f)
	}
	if fromSibling {
		s.stale = append(s.stale, staleFlow{Flow: *f})
		return true
	}
	if local && affectsLocalPods(changes) {
		s.inbound = append(s.inbound, inboundEntry{*f, stale})
	}
	return stale
}

// checkOutbound records the entry of a flow to a remote cluster. It reports whether the entry is
// stale.
func (s *staleFinder) checkOutbound(f *Flow, changes []*linkChange) (found bool) {
	_, isPod := s.pods.find(f.Orig.From.Addr())
	isPod = isPod && f.Mark == 0
	_, keepsSource := s.keepSource.find(f.Orig.From.Addr())
	local := isPod || f.Mark == 0 && f.Orig.To != f.Reply.From
	for _, change := range changes {
		flow, stale := change.checkStale(f, local, keepsSource)
		switch {
		case stale && !found:
			found = true
			s.stale = append(s.stale, flow)
		case !stale && !change.fromNodesOnly && isPod && f.portChanged():
			s.portChanged = append(s.portChanged, flow)
		}
	}
	if isPod && affectsLocalPods(changes) {
		s.outbound[flowKey{f.Protocol, f.Orig.From, f.Reply.From}] = true
	}
	return found
}

// affectsLocalPods reports whether the changes affect flows of this node's own pods.
func affectsLocalPods(changes []*linkChange) bool {
	return slices.ContainsFunc(changes, func(c *linkChange) bool { return !c.fromNodesOnly })
}

// matchCrossed finds the crossed entries, and the flows that lost their port to a crossed entry.
func (s *staleFinder) matchCrossed() {
	crossedKeys, backends := map[flowKey]bool{}, []staleFlow(nil)
	for i := range s.inbound {
		f := &s.inbound[i]
		if key := (flowKey{f.Protocol, f.Reply.From, f.Orig.From}); s.outbound[key] {
			crossedKeys[key] = true
			s.crossed = append(s.crossed, f.Flow)
		} else if f.stale {
			backends = append(backends, staleFlow{Flow: f.Flow})
		}
	}
	s.stale = append(backends, s.stale...)
	for i := range s.portChanged {
		if f := &s.portChanged[i]; crossedKeys[flowKey{f.Protocol, f.Orig.From, f.Reply.From}] {
			s.stale = append(s.stale, *f)
		}
	}
}

// isStaleBackend reports whether a packet by the other path created the entry of a flow to a
// local pod. Packets through another gateway arrive with the pod's address as destination. In
// flat clusters, a flow to the pod's own address looks the same and is also rebuilt.
func (c *linkChange) isStaleBackend(f *Flow) bool {
	return !c.fromNodesOnly && c.usesOwnLink == (f.Orig.To == f.Reply.From)
}

// cameFromSibling reports whether a sibling gateway translated the packet that created this
// entry. The flow's pod is on another node. While this gateway had no link, it handed the flow
// to the sibling, but the replies arrived at this gateway. Because of the entry, the pod's
// packets would now enter the link untranslated.
func (c *linkChange) cameFromSibling(f *Flow) bool {
	return c.usesOwnLink && f.Orig.To == f.Reply.From
}

// checkStale reports whether a flow's entry has the source address of the other path. It also
// returns the flow with the TTL of its refresh packet.
func (c *linkChange) checkStale(f *Flow, local, keepsSource bool) (flow staleFlow, stale bool) {
	flow = staleFlow{Flow: *f, local: local, ttl: refreshTTL}
	if c.usesOwnLink {
		flow.ttl = refreshTTL - 1 // this host does not forward its own packets
	}
	if c.fromNodesOnly && local {
		return flow, false
	}
	if c.usesOwnLink {
		return flow, f.keepsSource() && !keepsSource
	}
	// Translated flows of other nodes are not stale here. The other gateway handles them. They
	// reach it directly, or still arrive here and leave by this gateway's link.
	return flow, local && !f.keepsSource()
}

// prefixTable maps prefixes to names, for longest prefix match. A search needs one map access per
// prefix length; the number of prefixes does not matter.
type prefixTable struct {
	names   map[netip.Prefix]string
	lengths []int // of prefixes, plus lengthIPv6 for IPv6; in descending order
}

const lengthIPv6 = 1000

func newPrefixTable() *prefixTable { return &prefixTable{names: map[netip.Prefix]string{}} }

func (l *prefixTable) add(name string, prefixes []netip.Prefix) {
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
func (l *prefixTable) find(a netip.Addr) (string, bool) {
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
