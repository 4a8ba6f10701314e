package health

import (
	"maps"
	"net/netip"
	"time"
)

// condition returns the state of this gateway that applies to all its links.
func (p *Prober) condition() condition {
	isolation := p.isolation.rank()
	switch {
	case p.gateway == "":
		return condition{rank: Good}
	case isolation == Isolated:
		return condition{rank: Isolated, reason: "this gateway reaches no other node of its cluster"}
	case p.draining:
		return condition{rank: Draining, reason: "this gateway is draining"}
	case !p.ready:
		return condition{rank: Draining, reason: "this gateway is not ready yet"}
	case isolation == Draining:
		return condition{rank: Draining, reason: "this gateway has only just reached the other nodes of its cluster again"}
	}
	return condition{rank: Good}
}

// advertFor returns the advert of a link. It contains only local observations. If each end repeated
// the advert of the peer, both ranks would stay low.
func (p *Prober) advertFor(t *target, now time.Time) linkAdvert {
	return linkAdvert{
		rank: min(t.localRank(now), p.condition().rank), inUse: p.uses(t.Peer), acceptsTransit: p.acceptsTransit,
		traffic: p.traffic[t.Peer.Cluster],
	}
}

func (p *Prober) publishedStateOf(t *target, now time.Time) publishedState {
	peer := t.effectiveAdvert()
	return publishedState{
		live: t.liveness, rank: t.rank(now, p.condition()), uses: peer.inUse,
		acceptsTransit: p.acceptsTransit && peer.acceptsTransit, traffic: peer.traffic,
	}
}

// detectChange marks the published state as outdated if the state of a target changed. It reports
// whether the change affects paths. A change of traffic does not.
func (p *Prober) detectChange(t *target, now time.Time) bool {
	before, current := t.published, p.publishedStateOf(t, now)
	if before == current {
		return false
	}
	t.published = current
	p.dirty = true
	before.traffic = current.traffic
	return before != current
}

// publishChanges sends changes: a triggered update to gateways of other clusters, and the link
// states to nodes of this cluster that probed recently.
func (p *Prober) publishChanges(out []outgoing, now time.Time) []outgoing {
	p.dirty, p.publishedAt = false, now
	p.updateBusy(now)
	entries := make([]entry, 0, len(p.tunnels))
	for _, t := range p.tunnels {
		p.updatePeer(t, now)
		p.detectChange(t, now)
		// The traffic bit covers only packets of this gateway. If gateways repeated the
		// bits of other gateways, the bit would never clear.
		advert := linkAdvert{
			rank: t.published.rank, inUse: t.published.uses,
			acceptsTransit: t.published.acceptsTransit, traffic: p.traffic[t.Peer.Cluster],
		}
		if e := (entry{t.hash, advert}); e.linkAdvert != (linkAdvert{}) {
			entries = append(entries, e)
		}
	}
	p.dirty = false
	list := newLinkStateList(entries)
	if list.generation != p.linkStates.generation {
		p.linkStates = list.withDelta(p.linkStates)
		out = p.pushLinkStates(out, now)
	}
	return out
}

// updateBusy determines the clusters whose links are probed at the full rate, and the rate of the
// other links. A cluster is busy if a gateway at either end of its links forwards packets to it. It
// is also busy if it reports two links as in use: it has left one of them, and that link may be
// dead.
func (p *Prober) updateBusy(now time.Time) {
	busy, inUse := map[string]bool{}, map[string]bool{}
	maps.Copy(busy, p.traffic)
	observe := func(cluster string, advert linkAdvert) {
		if advert.traffic || advert.inUse && inUse[cluster] {
			busy[cluster] = true
		}
		inUse[cluster] = inUse[cluster] || advert.inUse
	}
	for _, t := range p.sorted {
		if t.isRemote() {
			observe(t.Peer.Cluster, t.effectiveAdvert())
			continue
		}
		for hash, advert := range t.received.linkStates {
			if cluster, known := p.clusterOf[hash]; known {
				observe(cluster, advert)
			}
		}
	}
	idleLinks := 0
	for _, t := range p.tunnels {
		if !busy[t.Peer.Cluster] {
			idleLinks++
		}
	}
	p.idleIntervals = idleIntervalsFor(idleLinks, p.settings.Interval)
	if maps.Equal(busy, p.busy) {
		return
	}
	p.busy = busy
	for _, t := range p.tunnels {
		p.expediteProbe(t, now)
	}
}

// idleIntervalsFor returns the number of intervals between two probes of an idle link.
func idleIntervalsFor(idleLinks int, interval time.Duration) int {
	shared := time.Duration(idleLinks) * time.Second / idleRate
	return max(minIdleIntervals, int(min(shared, maxIdleInterval)/interval))
}

// updatePeer schedules a triggered update if the advert differs from the last one sent.
func (p *Prober) updatePeer(t *target, now time.Time) {
	current := p.advertFor(t, now)
	if t.sentAdvert == current {
		return
	}
	t.sentAdvert = current
	p.scheduleUpdate(t, now)
}

// scheduleUpdate schedules a triggered update. Two updates are at least a tenth of an interval
// apart.
func (p *Prober) scheduleUpdate(t *target, now time.Time) {
	t.triggered = triggeredUpdate{nonce: newNonce(), at: now, sent: t.triggered.sent}
	if earliest := t.triggered.sent.Add(p.settings.Interval / 10); earliest.After(now) {
		t.triggered.at = earliest
	}
	p.reschedule(t, now)
}

// subscriber is a node of this cluster that probed this gateway. Updates are sent as additional
// replies to the node's last probe. The nonce of that probe authenticates them.
type subscriber struct {
	addr       netip.AddrPort
	local      Listen
	sequence   uint32
	nonce      uint64
	hash       uint64
	generation uint64 // of the list that the node has
	lastProbe  time.Time
}

// subscribers has the nodes of this cluster that probe this gateway, by address.
type subscribers map[netip.Addr]*subscriber

// maxSubscribers limits the nodes that get updates immediately. Other nodes get them in the reply
// to their next probe.
const maxSubscribers = 4096

func (s subscribers) record(node subscriber) {
	from := node.addr.Addr()
	if s[from] != nil || len(s) < maxSubscribers {
		s[from] = &node
	}
}

// recordSent records that a node has a generation of the list.
func (s subscribers) recordSent(from netip.Addr, generation uint64) {
	if node := s[from]; node != nil {
		node.generation = generation
	}
}

// pushLinkStates sends the link states to nodes that probed recently. It removes other subscribers.
func (p *Prober) pushLinkStates(out []outgoing, now time.Time) []outgoing {
	for from, sub := range p.subscribers {
		limiter := p.nodes[from]
		if limiter == nil || now.Sub(sub.lastProbe) > 10*p.settings.Interval+time.Second {
			delete(p.subscribers, from)
			continue
		}
		header := message{
			reply: true, unsolicited: true, sequence: sub.sequence, nonce: sub.nonce,
			from: p.self, to: sub.hash,
			linkAdvert: linkAdvert{rank: p.condition().rank},
		}
		for _, m := range p.linkStates.replies(sub.generation, header) {
			if !p.allow(limiter, now) {
				break
			}
			p.stats.Pushes++
			out = append(out, outgoing{From: sub.local, To: sub.addr, Raw: m.encode()})
		}
		sub.generation = p.linkStates.generation
	}
	return out
}

// WithRetiring returns the snapshot with retiring gateways ranked Draining at best.
func (s Snapshot) WithRetiring(gateways []GatewayID) Snapshot {
	s.retiring = gateways
	return s
}

// capRank returns the rank of a link, at most Draining if one of its gateways retires.
func (s *Snapshot) capRank(rank Rank, local, remote GatewayID) Rank {
	for _, gateway := range s.retiring {
		if gateway == local || gateway == remote {
			return min(rank, Draining)
		}
	}
	return rank
}

// NewSnapshot returns a snapshot of links as the prober of gateway self would return it. On a node
// that is not a gateway, self.Gateway is empty.
func NewSnapshot(self GatewayID, links []Link) Snapshot {
	byPeer := make(map[GatewayID][]int, len(links))
	for i, link := range links {
		byPeer[link.Target.Peer] = append(byPeer[link.Target.Peer], i)
	}
	return Snapshot{Links: links, self: self, byPeer: byPeer}
}
