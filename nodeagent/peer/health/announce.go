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
		return condition{rank: Isolated, why: "this gateway reaches no other node of its cluster"}
	case p.draining:
		return condition{rank: Draining, why: "this gateway is draining"}
	case !p.ready:
		return condition{rank: Draining, why: "this gateway is not ready yet"}
	case isolation == Draining:
		return condition{rank: Draining, why: "this gateway has only just reached the other nodes of its cluster again"}
	}
	return condition{rank: Good}
}

// advertFor returns the advert of a link. It contains only own observations: if it repeated the
// peer's, each end would keep the other's rank low.
func (p *Prober) advertFor(t *target, now time.Time) linkAdvert {
	return linkAdvert{
		rank: min(t.ownRank(now), p.condition().rank), inUse: p.uses(t.Peer), acceptsTransit: p.acceptsTransit,
		traffic: p.traffic[t.Peer.Cluster],
	}
}

func (p *Prober) shownOf(t *target, now time.Time) reported {
	other := t.effectiveAdvert()
	return reported{
		live: t.live, rank: t.rank(now, p.condition()), uses: other.inUse,
		acceptsTransit: p.acceptsTransit && other.acceptsTransit, traffic: other.traffic,
	}
}

// detectChange marks the published state as outdated if the state of a target changed. It reports whether
// the change affects paths, which traffic does not.
func (p *Prober) detectChange(t *target, now time.Time) bool {
	before, current := t.shown, p.shownOf(t, now)
	if before == current {
		return false
	}
	t.shown = current
	p.stale = true
	before.traffic = current.traffic
	return before != current
}

// publishChanges sends changes: a triggered update to gateways of other clusters, and the link
// states to nodes of this cluster that probed recently.
func (p *Prober) publishChanges(out []outgoing, now time.Time) []outgoing {
	p.stale, p.announced = false, now
	p.updateBusy(now)
	entries := make([]entry, 0, len(p.tunnels))
	for _, t := range p.tunnels {
		p.updatePeer(t, now)
		p.detectChange(t, now)
		// Only this gateway's own packets: if it repeated the reports of others, the bit would never end.
		own := linkAdvert{rank: t.shown.rank, inUse: t.shown.uses, acceptsTransit: t.shown.acceptsTransit, traffic: p.traffic[t.Peer.Cluster]}
		if e := (entry{t.hash, own}); e.linkAdvert != (linkAdvert{}) {
			entries = append(entries, e)
		}
	}
	p.stale = false
	list := newReachList(entries)
	if list.generation != p.reach.generation {
		p.reach = list.withDelta(p.reach)
		out = p.pushLinkStates(out, now)
	}
	return out
}

// updateBusy determines the clusters whose links are probed at the full rate, and the rate of the other
// links. A cluster is busy if a gateway at either end of its links forwards packets there, or if it reports
// two links as in use: it left one of them, which may be dead.
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
		for hash, advert := range t.received.reach {
			if cluster, known := p.clusterOf[hash]; known {
				observe(cluster, advert)
			}
		}
	}
	idle := 0
	for _, t := range p.tunnels {
		if !busy[t.Peer.Cluster] {
			idle++
		}
	}
	p.stretch = stretchFor(idle, p.settings.Interval)
	if maps.Equal(busy, p.busy) {
		return
	}
	p.busy = busy
	for _, t := range p.tunnels {
		p.probeSooner(t, now)
	}
}

// stretchFor returns the number of intervals between two probes of an idle link.
func stretchFor(idle int, interval time.Duration) int {
	shared := time.Duration(idle) * time.Second / idleRate
	return max(minStretch, int(min(shared, maxIdle)/interval))
}

// updatePeer schedules a triggered update if the advert differs from the last sent one.
func (p *Prober) updatePeer(t *target, now time.Time) {
	current := p.advertFor(t, now)
	if t.sentAdvert == current {
		return
	}
	t.sentAdvert = current
	p.scheduleUpdate(t, now)
}

// scheduleUpdate schedules a triggered update: now, or after the shortest time since the last one.
func (p *Prober) scheduleUpdate(t *target, now time.Time) {
	t.triggered = triggeredUpdate{nonce: nonce(), at: now, sent: t.triggered.sent}
	if again := t.triggered.sent.Add(p.settings.Interval / 10); again.After(now) {
		t.triggered.at = again
	}
	p.replan(t, now)
}

// subscriber is a node of this cluster that probed this gateway. Updates are sent as further replies
// to its last probe, which authenticates them.
type subscriber struct {
	to         netip.AddrPort
	at         Listen
	sequence   uint32
	nonce      uint64
	hash       uint64
	generation uint64 // of the list that it has
	seen       time.Time
}

// subscribers has the nodes of this cluster that probe, by address.
type subscribers map[netip.Addr]*subscriber

// maxSubscribers limits the nodes that get updates immediately. Others get them in the reply to their next
// probe.
const maxSubscribers = 4096

func (a subscribers) record(now subscriber) {
	from := now.to.Addr()
	if a[from] != nil || len(a) < maxSubscribers {
		a[from] = &now
	}
}

// recordSent records that a node has a generation of the list.
func (a subscribers) recordSent(from netip.Addr, generation uint64) {
	if known := a[from]; known != nil {
		known.generation = generation
	}
}

// pushLinkStates sends the link states to nodes that probed recently, and removes the others.
func (p *Prober) pushLinkStates(out []outgoing, now time.Time) []outgoing {
	for from, a := range p.subscribers {
		budget := p.nodes[from]
		if budget == nil || now.Sub(a.seen) > 10*p.settings.Interval+time.Second {
			delete(p.subscribers, from)
			continue
		}
		head := message{
			reply: true, unsolicited: true, sequence: a.sequence, nonce: a.nonce,
			from: p.self, to: a.hash, linkAdvert: linkAdvert{rank: p.condition().rank},
		}
		for _, m := range p.reach.replies(a.generation, head) {
			if !p.allow(budget, now) {
				break
			}
			p.stats.Pushes++
			out = append(out, outgoing{From: a.at, To: a.to, Raw: m.encode()})
		}
		a.generation = p.reach.generation
	}
	return out
}

// WithRemoved returns the snapshot with retiring gateways ranked Draining at best.
func (s Snapshot) WithRemoved(gateways []GatewayID) Snapshot {
	s.leaving = gateways
	return s
}

// capRank returns the rank of a link, at most Draining if one of its gateways retires.
func (s *Snapshot) capRank(rank Rank, local, remote GatewayID) Rank {
	for _, p := range s.leaving {
		if p == local || p == remote {
			return min(rank, Draining)
		}
	}
	return rank
}

// NewSnapshot returns a snapshot of links, like the prober of gateway self. On a worker, self has no
// gateway.
func NewSnapshot(self GatewayID, links []Link) Snapshot {
	byPeer := make(map[GatewayID][]int, len(links))
	for i, link := range links {
		byPeer[link.Target.Peer] = append(byPeer[link.Target.Peer], i)
	}
	return Snapshot{Links: links, self: self, byPeer: byPeer}
}
