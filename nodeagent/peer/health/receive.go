package health

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/peer/transport"
)

// incoming is a received packet.
type incoming struct {
	from  netip.AddrPort
	local Listen
	*message
}

// Receive handles a packet and returns the packets to send.
func (p *Prober) Receive(now time.Time, packet transport.Packet) (out []outgoing) {
	m, ok := decodeMessage(packet.Message)
	if !ok {
		return nil
	}
	in := incoming{packet.From, packet.Local, &m}
	changed := false
	p.mu.Lock()
	if m.reply {
		changed = p.onReply(now, in)
	} else {
		out, changed = p.onProbe(now, in)
	}
	first, scheduled := p.schedule.First()
	early := p.dirty || scheduled && first.wake.Before(p.nextTick)
	p.mu.Unlock()
	if early {
		p.wake.Fire()
	}
	if changed {
		p.notify()
	}
	return out
}

// onReply handles a reply. The addresses identify the target. The reply must have the nonce of a
// probe.
func (p *Prober) onReply(now time.Time, m incoming) (changed bool) {
	if p.handleOffPathReply(now, m.message) {
		return false
	}
	t := p.byFlow[flow{local: m.local, remote: m.from.Addr()}]
	if t == nil || m.message.from != t.hash || m.to != p.self {
		p.stats.Foreign++
		return false
	}
	valid := m.triggered && t.triggered.nonce == m.nonce && m.nonce != 0
	if !m.triggered {
		_, valid = t.matchProbe(m.message)
	}
	if !valid {
		return false
	}
	switch {
	case m.unsolicited:
	case m.triggered && t.triggered.second:
		t.triggered.nonce = 0
	case m.triggered:
		t.triggered = triggeredUpdate{nonce: newNonce(), second: true, at: now.Add(p.settings.Interval / 4), sent: t.triggered.sent}
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
		rankChanged := p.onSiblingReply(now, t, m.rank)
		p.dirty = p.dirty || rankChanged
		before := t.received.generation
		updated, missingBase := t.received.addPage(m.message)
		p.dirty = p.dirty || t.received.generation != before
		if missingBase {
			p.scheduleUpdate(t, now)
		}
		changed = updated || rankChanged
	}
	changed = p.detectChange(t, now) || changed
	p.expediteProbe(t, now)
	p.reschedule(t, now)
	return changed
}

// onProbe returns the replies to a probe for this gateway. Only probes over the VXLAN between the
// nodes of this cluster get the link states.
func (p *Prober) onProbe(now time.Time, m incoming) (out []outgoing, changed bool) {
	if p.gateway == "" || m.to != p.self {
		p.stats.Foreign++
		return nil, false
	}
	header := message{
		reply: true, triggered: m.triggered, sequence: m.sequence, nonce: m.nonce,
		from: m.to, to: m.message.from, linkAdvert: linkAdvert{rank: p.condition().rank},
	}
	replies, limiter := []message{header}, &p.unknownSenderLimit
	if m.local.Device != "" {
		replies = p.linkStates.replies(m.generation, header)
		if nodeLimiter := p.nodes[m.from.Addr()]; nodeLimiter != nil {
			limiter = nodeLimiter
			changed = p.isolation.onPacket(now, p.settings)
			p.dirty = p.dirty || changed
			p.subscribe(m, now)
		}
	} else if t := p.byFlow[flow{local: m.local, remote: m.from.Addr()}]; t != nil && t.hash == m.message.from {
		limiter = &t.unverifiedLimit
		if m.token == t.token {
			limiter = &t.replyLimit
		}
		changed = p.onPeerAdvert(t, m, now)
		replies[0].linkAdvert, replies[0].token = p.advertFor(t, now), t.token
	}
	for i := range replies {
		if !p.allow(limiter, now) {
			break
		}
		p.stats.Replied++
		out = append(out, outgoing{From: m.local, To: m.from, Raw: replies[i].encode()})
	}
	return out, changed
}

// onPeerAdvert handles the advert in a probe. The source address may be forged. If the token is
// missing, this end probes the peer instead.
func (p *Prober) onPeerAdvert(t *target, m incoming, now time.Time) (changed bool) {
	if t.onPacketWhileDead(now, p.settings) {
		p.reschedule(t, now)
	}
	if m.token == t.token {
		t.setPeerAdvert(m.linkAdvert)
		changed = p.detectChange(t, now)
		p.expediteProbe(t, now)
	} else if t.effectiveAdvert() != m.linkAdvert && t.triggered.nonce == 0 && p.verifyLimit.Allow(now, verifyRate) {
		p.scheduleUpdate(t, now)
	}
	return changed
}

// subscribe records the sender of a probe for later updates.
func (p *Prober) subscribe(m incoming, now time.Time) {
	if m.triggered {
		p.subscribers.recordSent(m.from.Addr(), p.linkStates.generation)
		return
	}
	p.subscribers.record(subscriber{
		addr: m.from, local: m.local,
		sequence: m.sequence, nonce: m.nonce, hash: m.message.from,
		generation: p.linkStates.generation, lastProbe: now,
	})
}

// replyRate limits the replies to one source per second and in one burst. A peer with the shortest
// interval and all triggered updates stays below it. All unknown senders share one limit. Thus a
// flood affects neither other peers nor the owner of a forged address.
const replyRate = 2000

// allow reports whether a rate limit permits a reply. Otherwise it counts the probe as limited.
func (p *Prober) allow(limiter *transport.RateLimiter, now time.Time) bool {
	if !limiter.Allow(now, replyRate) {
		p.stats.Limited++
		return false
	}
	return true
}
