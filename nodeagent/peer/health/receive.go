package health

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/peer/transport"
)

// incoming is a received packet.
type incoming struct {
	from netip.AddrPort
	at   Listen
	*message
}

// Receive handles a packet and returns the packets to send.
func (p *Prober) Receive(now time.Time, came transport.Packet) (out []outgoing) {
	m, ok := decodeMessage(came.Message)
	if !ok {
		return nil
	}
	in := incoming{came.From, came.At, &m}
	changed := false
	p.mu.Lock()
	if m.reply {
		changed = p.onReply(now, in)
	} else {
		out, changed = p.onProbe(now, in)
	}
	first, any := p.schedule.First()
	early := p.stale || any && first.wake.Before(p.until)
	p.mu.Unlock()
	if early {
		p.wake.Fire()
	}
	if changed {
		p.notify()
	}
	return out
}

// onReply handles a reply. Its addresses identify the target, and it must have the nonce of a probe.
func (p *Prober) onReply(now time.Time, m incoming) (changed bool) {
	if p.handleOffPathReply(now, m.message) {
		return false
	}
	t := p.byFlow[flow{at: m.at, from: m.from.Addr()}]
	if t == nil || m.message.from != t.hash || m.to != p.self {
		p.stats.Foreign++
		return false
	}
	genuine := m.triggered && t.triggered.nonce == m.nonce && m.nonce != 0
	if !m.triggered {
		_, genuine = t.matchProbe(m.message)
	}
	if !genuine {
		return false
	}
	switch {
	case m.unsolicited:
	case m.triggered && t.triggered.again:
		t.triggered.nonce = 0
	case m.triggered:
		t.triggered = triggeredUpdate{nonce: nonce(), again: true, at: now.Add(p.settings.Interval / 4), sent: t.triggered.sent}
	default:
		if matched, _ := t.onReply(now, m.message, p.settings); matched {
			p.stats.Answered++
		}
	}
	t.onPacketWhileDead(now, p.settings)
	if t.isRemote() {
		t.setPeerAdvert(m.linkAdvert)
		t.peerToken = m.token
	} else {
		back := p.onSiblingReply(now, t, m.rank)
		p.stale = p.stale || back
		known := t.received.generation
		updated, lost := t.received.addPage(m.message)
		p.stale = p.stale || t.received.generation != known
		if lost {
			p.scheduleUpdate(t, now)
		}
		changed = updated || back
	}
	changed = p.detectChange(t, now) || changed
	p.probeSooner(t, now)
	p.replan(t, now)
	return changed
}

// onProbe returns the reply to a probe for this gateway. Only probes over the VXLAN between the nodes of this
// cluster get the link states.
func (p *Prober) onProbe(now time.Time, m incoming) (out []outgoing, changed bool) {
	if p.gateway == "" || m.to != p.self {
		p.stats.Foreign++
		return nil, false
	}
	head := message{
		reply: true, triggered: m.triggered, sequence: m.sequence, nonce: m.nonce,
		from: m.to, to: m.message.from, linkAdvert: linkAdvert{rank: p.condition().rank},
	}
	replies, budget := []message{head}, &p.unknownSenders
	if m.at.Device != "" {
		replies = p.reach.replies(m.generation, head)
		if own := p.nodes[m.from.Addr()]; own != nil {
			budget = own
			changed = p.isolation.onPacket(now, p.settings)
			p.stale = p.stale || changed
			p.subscribe(m, now)
		}
	} else if t := p.byFlow[flow{at: m.at, from: m.from.Addr()}]; t != nil && t.hash == m.message.from {
		budget = &t.unproven
		if m.token == t.token {
			budget = &t.replyLimit
		}
		changed = p.onPeerAdvert(t, m, now)
		replies[0].linkAdvert, replies[0].token = p.advertFor(t, now), t.token
	}
	for i := range replies {
		if !p.allow(budget, now) {
			break
		}
		p.stats.Replied++
		out = append(out, outgoing{From: m.at, To: m.from, Raw: replies[i].encode()})
	}
	return out, changed
}

// onPeerAdvert handles the advert in a probe. The source address may be forged, so without the token this end
// probes the peer instead.
func (p *Prober) onPeerAdvert(t *target, m incoming, now time.Time) (changed bool) {
	if t.onPacketWhileDead(now, p.settings) {
		p.replan(t, now)
	}
	if m.token == t.token {
		t.setPeerAdvert(m.linkAdvert)
		changed = p.detectChange(t, now)
		p.probeSooner(t, now)
	} else if t.effectiveAdvert() != m.linkAdvert && t.triggered.nonce == 0 && p.verifyLimit.Allow(now, verifyRate) {
		p.scheduleUpdate(t, now)
	}
	return changed
}

// subscribe records the sender of a probe for later updates.
func (p *Prober) subscribe(m incoming, now time.Time) {
	if m.triggered {
		p.subscribers.recordSent(m.from.Addr(), p.reach.generation)
		return
	}
	p.subscribers.record(subscriber{
		to: m.from, at: m.at, sequence: m.sequence, nonce: m.nonce, hash: m.message.from,
		generation: p.reach.generation, seen: now,
	})
}

// replyRate limits the replies per second, and in one burst, to one source. A peer with the shortest
// interval and all triggered updates stays below it. All unknown senders share one limit. So a
// flood harms neither other peers nor the owner of a forged address.
const replyRate = 2000

// allow reports whether the rate limit of a source permits a reply, and counts a probe without one.
func (p *Prober) allow(budget *transport.RateLimiter, now time.Time) bool {
	if !budget.Allow(now, replyRate) {
		p.stats.Limited++
		return false
	}
	return true
}
