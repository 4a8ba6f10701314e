package migration

import (
	"time"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

const (
	activeInterval = 200 * time.Millisecond // between probes after an event
	idleInterval   = 2 * time.Second        // between probes otherwise
	activeWindow   = 10 * time.Second       // after an event
	reciprocalTime = 5 * time.Second        // how long this end probes after a probe of a migrating peer
	// seqResetAfter is the time without a report after which a lower sequence number of the
	// peer is accepted. The clock of the peer may have been set back before it restarted.
	seqResetAfter = 10 * time.Second
)

// Message is the report of one end about all its tunnels.
type Message = wire.TunnelReport

// Outgoing is a message and the tunnel to send it over.
type Outgoing struct {
	On TunnelID
	Message
}

// Advance applies the rules as of now. It may change Saved.
func (p *Pair) Advance(now time.Time) { p.advance(now) }

// Tick returns the probes that are due and the time of the next probes; zero = none.
func (p *Pair) Tick(now time.Time) ([]Outgoing, time.Time) {
	p.advance(now)
	if !p.isMigrating() && !now.Before(p.probeForPeer) {
		p.probing = false
		return nil, time.Time{}
	}
	if !p.probing {
		p.probing, p.nextProbe = true, now
		for _, t := range p.tunnels {
			t.restart(now)
		}
	}
	if p.nextProbe.After(now) {
		return nil, p.nextProbe
	}
	var out []Outgoing
	for _, t := range p.tunnels {
		if t.installed {
			m := p.report(now)
			m.WantReply = true
			t.onProbe(m.Seq, now)
			out = append(out, Outgoing{On: t.TunnelID, Message: m})
		}
	}
	p.nextProbe = now.Add(idleInterval)
	if now.Sub(p.lastEvent) < activeWindow {
		p.nextProbe = now.Add(activeInterval)
	}
	return out, p.nextProbe
}

// report returns the next message.
func (p *Pair) report(now time.Time) Message {
	p.seq++
	m := Message{Migrating: p.isMigrating(), Seq: p.seq, AckSeq: p.peer.seq}
	for _, t := range p.tunnels {
		state := wire.TunnelState{
			ID: t.hash(), Available: t.installed && t.withdrawnSeq == 0, Verified: t.installed && t.isVerified(now), InUse: p.maySend(t.TunnelID),
			Secondary: p.preferSecondary && t.TunnelID == p.want.counterpart(),
		}
		t.announced = t.announced || state.Verified || state.InUse
		m.Tunnels = append(m.Tunnels, state)
	}
	return m
}

// Receive handles a message that arrived over a tunnel. It returns the reply; false = no reply. It
// does not reply over a tunnel that this end does not have.
func (p *Pair) Receive(on TunnelID, m Message, now time.Time) (Message, bool) {
	t := p.find(on)
	if t == nil {
		return Message{}, false
	}
	if m.Seq > p.peer.seq || now.Sub(p.peer.receivedAt) > seqResetAfter {
		p.onPeerReport(m, now)
	}
	if !m.WantReply && t.onReply(m.ReplyTo, now) && t.replies == verifyReplies {
		p.probeNow(now)
	}
	p.advance(now)
	if !m.WantReply {
		return Message{}, false
	}
	if m.Migrating {
		if p.probeForPeer = now.Add(reciprocalTime); !p.probing {
			p.probeNow(now)
		}
	}
	reply := p.report(now)
	reply.ReplyTo = m.Seq
	return reply, true
}

// onPeerReport replaces the latest report of the peer.
func (p *Pair) onPeerReport(m Message, now time.Time) {
	tunnels := make(map[uint64]wire.TunnelState, len(m.Tunnels))
	changed := len(m.Tunnels) != len(p.peer.tunnels)
	for _, t := range m.Tunnels {
		before, known := p.peer.tunnels[t.ID]
		changed = changed || !known || before != t
		tunnels[t.ID] = t
	}
	p.peer = peerReport{seq: m.Seq, ackSeq: m.AckSeq, receivedAt: now, tunnels: tunnels}
	if changed {
		p.probeNow(now)
	}
}
